"""Web services: long-running jobs with replicas, health checks and a URL."""
