"""Rooms: control groups that serve one attempt after the other.

To make and to remove a group costs the kernel more than many a job. So a wrapper keeps the one it has as long as
each attempt leaves it quiet (see attempt.sh), for those of the same person with the same limits. Not for long:
what a job leaves in memory, as in /dev/shm, counts against the next one in its room.
"""

from collections.abc import Callable
from dataclasses import dataclass

from heliostat.engines.local.cgroups import Group, Limits

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
    uses: int = 0
    inside: int = 0  # told to use it, and not over
    is_closed: bool = False

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
            self.group.remove()


def room_for(guest: Guest, room: Room | None, make: Callable[[str, Limits], Group]) -> Room:
    """The one there is, or a new one. OSError when there can be none."""
    if room is None or not room.lets_in(guest):
        group = make(guest.name, guest.limits)
        if room is not None:
            room.close()
        room = Room(group, guest, is_closed=guest.wants_its_own)
    room.enter()
    return room
