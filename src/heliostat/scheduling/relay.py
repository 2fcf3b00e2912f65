"""Who takes over from whom, without another plan.

When all who wait are alike and wait for nothing but room, the first of them gets exactly the room of one like them
that has ended, and one like them that comes goes to the end of the line: a plan could say nothing else. So a
thousand short jobs of one person need a few plans, not two thousand.
"""

from collections import deque
from collections.abc import Collection, Sequence
from datetime import datetime

from heliostat.models import Job, JobState, NodeState, Place, Placement
from heliostat.scheduling.order import queue_order
from heliostat.scheduling.policy import Policy
from heliostat.scheduling.quotas import has_quotas
from heliostat.scheduling.snapshot import Plan, Snapshot, Start

GOOD_SECONDS = 0.25
"""So long a line is followed. Then a plan is made, and what people are told is as new as that."""

_LONGEST = 1000  # more than can follow in that time
_ANYWHERE = Placement()
_ALIKE = ("shape", "leaf", "rank", "limit", "preemptible")


class Relay:
    """The line as a plan has left it, and what has become of it since."""

    def __init__(self, made_at: datetime, line: Sequence[Job] = (), nodes: Collection[str] = ()) -> None:
        """`nodes` are those on which they may start. Of a long line only the first are kept."""
        self._made_at = made_at
        self._line = deque(line[:_LONGEST])
        self._is_whole = len(line) <= _LONGEST
        self._like = self._line[0] if self._line else None
        self.nodes = nodes

    @property
    def waiting(self) -> int:
        return len(self._line)

    def is_good(self, now: datetime, *, others_stand_ready: bool = False) -> bool:
        """Where like ones stand ready for the next place, there is none for whoever comes, though nobody waits."""
        if not (self._line or (others_stand_ready and self._like)):
            return False
        return 0 <= (now - self._made_at).total_seconds() < GOOD_SECONDS

    def let_join(self, jobs: Sequence[Job], now: datetime) -> bool:
        """Whether these, just submitted, are behind all the others; False: that needs a plan."""
        like = self._like
        if like is None or not all(_are_equals(like, job) and _waits_for_room(job, now) for job in jobs):
            return False
        if self._is_whole:
            self._line += jobs
        return True

    def starts_after(self, ended: Sequence[Job]) -> list[Start] | None:
        """Who starts where these have ended; None: that needs a plan."""
        if len(self._line) < len(ended):
            return None
        if not all(self._leaves_room_for(*pair) for pair in zip(ended, self._line, strict=False)):
            return None
        return [Start(self._line.popleft(), (Place(before.node or "", ()),)) for before in ended]

    def lets_pass(self, before: Job) -> bool:
        """Whether who stands ready behind that one may go before all who wait: those are its equals, if any."""
        return before.node in self.nodes and (self._like is None or _are_equals(self._like, before))

    def next_like(self, before: Job, most: int) -> list[Job]:
        """The first of the line, who may start where that one ends."""
        found: list[Job] = []
        while self._line and len(found) < most and self._leaves_room_for(before, self._line[0]):
            found.append(self._line.popleft())
        return found

    def _leaves_room_for(self, before: Job, after: Job) -> bool:
        if before.resources != after.resources or before.placement != after.placement:
            return False
        return before.project == after.project and before.node in self.nodes and not before.devices


def relay_after(made: Plan, snapshot: Snapshot, policy: Policy, now: datetime) -> Relay:
    """Nobody is in its line where more than room decides who is next."""
    if not len(snapshot.pending):
        return Relay(now, nodes={node.name for node in snapshot.machines.nodes if node.state is NodeState.UP})
    if made.stops or not _only_room_matters(snapshot) or not _all_are_alike(snapshot):
        return Relay(now)
    started = {start.job.id for start in made.starts}
    rows = queue_order(snapshot, policy, now.timestamp())[: len(started) + _LONGEST + 1]
    numbers = snapshot.pending["job"][rows].tolist()
    line = [snapshot.jobs[number] for number in numbers if number not in started]
    return Relay(now, line, _open_nodes(snapshot))


def _only_room_matters(snapshot: Snapshot) -> bool:
    if snapshot.reservations or snapshot.parts or snapshot.others_matter or snapshot.may_send_away:
        return False
    return not has_quotas(snapshot.accounts)


def _open_nodes(snapshot: Snapshot) -> set[str]:
    """Where they may start, and nobody holds more than there is, as after a node has become smaller."""
    machines, free = snapshot.machines, snapshot.free
    shape = snapshot.shapes[int(snapshot.pending["shape"][0])]
    are_open = machines.suitable(shape).open_nodes & (free.cpus >= 0) & (free.memory >= 0)
    return {node.name for node, is_open in zip(machines.nodes, are_open.tolist(), strict=True) if is_open}


def _all_are_alike(snapshot: Snapshot) -> bool:
    """And ask for no devices, of which no two are the same."""
    rows = snapshot.pending
    if not len(rows):
        return False
    shape = snapshot.shapes[int(rows["shape"][0])]
    if shape.resources.gpus or shape.placement != _ANYWHERE:
        return False
    return all((rows[name] == rows[name][0]).all() for name in _ALIKE)


def _are_equals(one: Job, other: Job) -> bool:
    """Nothing but their time of arrival says which is first."""
    return _standing(one) == _standing(other)


def _standing(job: Job) -> tuple[object, ...]:
    return (
        job.user,
        job.project,
        job.priority_class,
        job.priority,
        job.priority_everywhere,
        job.preemptible,
        job.overtime,
        job.time_limit_seconds,
        job.resources,
        job.placement,
    )


def _waits_for_room(job: Job, now: datetime) -> bool:
    return job.state is JobState.PENDING and job.array_id is None and not job.waited_seconds and job.may_start(now)
