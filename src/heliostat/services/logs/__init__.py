"""Logs of jobs, in parts of any size."""
