"""Rules of Prometheus and dashboards of Grafana, which `helio monitoring setup` installs, and queries to Prometheus."""
