"""The cluster: nodes, reservations, usage statistics and reports."""
