"""Background loops of the server, each in its own thread: notifications, schedules, samples, cleanup."""
