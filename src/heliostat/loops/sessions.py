"""Warns and ends sessions that nobody uses."""

from functools import partial

from heliostat.controller.loop import Loop
from heliostat.services.context import Context
from heliostat.services.sessions.watch import pause_seconds, watch_sessions


class SessionWatch:
    def __init__(self, context: Context) -> None:
        look = partial(watch_sessions, context)
        self._loop = Loop("sessions", look, pause_seconds(context), failure="sessions_not_watched")
        self.start, self.close = self._loop.start_later, self._loop.close
