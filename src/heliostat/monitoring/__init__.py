"""Rules of Prometheus and dashboards of Grafana, for `helio monitoring setup`, and queries to Prometheus."""
