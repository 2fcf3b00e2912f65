"""Schedules: repeating intervals (ISO 8601), cron, and catch-up of missed times. Pure."""
