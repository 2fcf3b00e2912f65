"""Schedules: create, edit, fire, and the results of their jobs."""
