"""The API of Mesos Chronos, a cron scheduler: its programs work with Heliostat's schedules as they are."""
