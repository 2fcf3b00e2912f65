"""Who takes over from whom, without another plan.

When all who wait are alike and wait for nothing but room, the first of them gets exactly the room of one like them
that has ended: a plan could say nothing else. So a thousand short jobs of one person need a few plans, not a
thousand.
"""

from collections import deque
from collections.abc import Sequence
from datetime import datetime

from heliostat.models import Job, Place, Placement
from heliostat.scheduling.order import queue_order
from heliostat.scheduling.policy import Policy
from heliostat.scheduling.quotas import has_quotas
from heliostat.scheduling.snapshot import Plan, Snapshot, Start

_GOOD_SECONDS = 0.25  # so long it is followed; then a plan is made, and what people are told is as new as that
_ANYWHERE = Placement()
_ALIKE = ("shape", "leaf", "rank", "limit", "preemptible")


class Relay:
    """The line as a plan has left it."""

    def __init__(self, line: Sequence[Job], made_at: datetime) -> None:
        self._line = deque(line)
        self._made_at = made_at

    def starts_after(self, ended: Sequence[Job], now: datetime) -> list[Start] | None:
        """Who starts where these have ended, if nothing else has happened; None: that needs a plan."""
        if not 0 <= (now - self._made_at).total_seconds() < _GOOD_SECONDS or len(self._line) < len(ended):
            return None
        if not all(_are_alike(before, after) for before, after in zip(ended, self._line, strict=False)):
            return None
        return [Start(self._line.popleft(), (Place(before.node or "", ()),)) for before in ended]


def relay_after(made: Plan, snapshot: Snapshot, policy: Policy, now: datetime) -> Relay:
    """Nobody is in its line where more than room decides who is next."""
    if made.stops or not _only_room_matters(snapshot) or not _all_are_alike(snapshot):
        return Relay((), now)
    started = {start.job.id for start in made.starts}
    rows = queue_order(snapshot, policy, now.timestamp())
    numbers = snapshot.pending["job"][rows].tolist()
    return Relay([snapshot.jobs[number] for number in numbers if number not in started], now)


def _only_room_matters(snapshot: Snapshot) -> bool:
    if snapshot.reservations or snapshot.parts or snapshot.others_matter or snapshot.may_send_away:
        return False
    return not has_quotas(snapshot.accounts)


def _all_are_alike(snapshot: Snapshot) -> bool:
    """And ask for no devices, which are no two the same."""
    rows = snapshot.pending
    if not len(rows):
        return False
    shape = snapshot.shapes[int(rows["shape"][0])]
    if shape.resources.gpus or shape.placement != _ANYWHERE:
        return False
    return all((rows[name] == rows[name][0]).all() for name in _ALIKE)


def _are_alike(before: Job, after: Job) -> bool:
    if before.resources != after.resources or before.placement != after.placement:
        return False
    return before.project == after.project and not before.devices and len(before.places) < 2
