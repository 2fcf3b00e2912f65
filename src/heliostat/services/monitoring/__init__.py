"""Monitoring: metrics for Prometheus, health and readiness of the server, targets for service discovery."""
