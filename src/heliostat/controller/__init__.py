"""The controller thread, which reconciles the cluster with the database, and the forecaster."""
