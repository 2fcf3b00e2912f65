"""Rooms: control groups that serve one attempt after the other.

To make and to remove a group costs the kernel more than many a job. So a wrapper keeps the one it has as long as
each attempt leaves it quiet (see attempt.sh), for those of the same person with the same limits. Not for long:
what a job leaves in memory, as in /dev/shm, counts against the next one in its room.
"""

import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from heliostat.engines.local.cgroups import CgroupTree, Group, Limits
from heliostat.server_log import get_logger

log = get_logger()
_MOST_USES = 64
SHORT_SECONDS = 1.0
"""Whoever stays longer is the last one."""


@dataclass(frozen=True, slots=True)
class Guest:
    """Who is to be let in."""

    name: str  # of the group, if one is made
    person: str
    limits: Limits
    is_alone: bool = False  # nobody before it, nobody after it
    is_contained: bool = False  # which shows its group to those in it

    @property
    def wants_its_own(self) -> bool:
        return self.is_alone or self.is_contained


@dataclass(slots=True)
class Room:
    """A group, those who were told to use it, and whether others may follow. Used with a lock of the caller's."""

    group: Group
    first: Guest
    remove: Callable[[Group], None]
    is_closed: bool
    uses: int = 1
    inside: int = 1  # told to use it, and not over

    @property
    def name(self) -> str:
        return self.first.name

    def lets_in(self, guest: Guest) -> bool:
        if self.is_closed or self.uses >= _MOST_USES or guest.wants_its_own:
            return False
        return (guest.person, guest.limits) == (self.first.person, self.first.limits)

    def enter(self) -> None:
        self.uses += 1
        self.inside += 1

    def leave(self) -> None:
        """One has left it quiet, or was never inside."""
        self.inside -= 1
        self._remove_if_over()

    def close(self) -> None:
        """Nobody else is let in."""
        self.is_closed = True
        self._remove_if_over()

    def _remove_if_over(self) -> None:
        if self.is_closed and not self.inside:
            self.remove(self.group)


class Rooms:
    """Makes and removes them. Where nobody can tell whether a group is quiet, each is for one."""

    def __init__(self, groups: CgroupTree, reapers: Executor) -> None:
        self._groups, self._reapers = groups, reapers

    def enter(self, guest: Guest, room: Room | None) -> Room:
        """The one there is, or a new one. OSError when there can be none."""
        if room is not None and room.lets_in(guest):
            room.enter()
            return room
        group = self._groups.create(guest.name, guest.limits)
        if room is not None:
            room.close()
        return Room(group, guest, self._remove, is_closed=guest.wants_its_own or not self._groups.quiet_files)

    def found(self, name: str, group: Group) -> Room:
        """One that an earlier server has made, for who is in it."""
        return Room(group, Guest(name, "", Limits()), self._remove, is_closed=True)

    def _remove(self, group: Group) -> None:
        if not group.remove():  # somebody has slipped in from outside after the last one
            self._reapers.submit(_clear, group)


def _clear(group: Group) -> None:
    for tries in range(20):
        if group.kill() and group.remove():
            return
        time.sleep(0.001 * 2 ** min(tries, 8))
    log.warning("group_not_removed", processes=group.pids()[:20])
