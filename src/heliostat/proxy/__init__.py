"""Reverse proxy to web servers in jobs (sessions, services, ports), on a separate origin."""
