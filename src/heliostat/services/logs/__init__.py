"""Logs of jobs: reading, following, windows of lines, search."""
