"""Schedules: what they are, when they fire, what becomes of their jobs."""
