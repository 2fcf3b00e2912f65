"""Setup of Prometheus, Alertmanager, node_exporter and Grafana on the machine of the server."""
