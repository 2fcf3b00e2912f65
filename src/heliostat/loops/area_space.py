"""Reads the free space of Heliostat's folders: in a loop, because a network file system may not answer."""

import os

from heliostat.config import Home
from heliostat.controller.background_loop import BackgroundLoop
from heliostat.services.monitoring_state import AreaSpace, MonitoringState

_INTERVAL_SECONDS = 30.0


class AreaSpaceReader:
    def __init__(self, home: Home, state: MonitoringState) -> None:
        self._folders = {
            "home": home.path,
            "database": home.database.parent,
            "jobs": home.jobs,
            "uploads": home.uploads,
        }
        self._state = state
        loop = BackgroundLoop("area-space", self.read, _INTERVAL_SECONDS, failure="free_space_not_read")
        self.start, self.close = loop.start, loop.close

    def read(self) -> None:
        read = {name: os.statvfs(folder) for name, folder in self._folders.items()}
        self._state.areas = {
            name: AreaSpace(space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize)
            for name, space in read.items()
        }
