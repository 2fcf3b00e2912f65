"""When something repeats: repeating intervals, cron, and what to do with what was missed. Pure."""
