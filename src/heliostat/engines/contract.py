"""What every engine promises.

An engine runs attempts somewhere. It decides nothing: the controller says what to start and stop, the engine
reports what became of it. Calls return at once, may be repeated, and take many items where that is cheaper.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol, runtime_checkable

from heliostat.engines.inside import Inside
from heliostat.models import (
    Attempt,
    AttemptId,
    AttemptUsage,
    ForeignJob,
    Job,
    JobId,
    Node,
    Observation,
    Reading,
    Readings,
    Recomposition,
    Reservation,
    Waiting,
)
from heliostat.models.sessions import Listening

Report = Callable[[Sequence[Observation]], None]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do beyond starting and stopping."""

    queues_itself: bool = False  # takes every job at once, and decides when and where it runs
    limits_arrays: bool = False  # takes all of an array at once, and lets no more run than its limit
    survives_restart: bool = True  # attempts go on while Heliostat is down
    contains: bool = False  # runs jobs in containers
    equips: bool = False  # gives jobs software that was built for them


class Engine(Protocol):
    name: str
    capabilities: Capabilities

    def nodes(self) -> list[Node]:
        """The machines as they are now, with the devices that may be handed out."""

    def start(self, attempts: Sequence[Attempt]) -> None:
        """Start each attempt once, all its tasks or none. What cannot start is reported as ended, never raised.

        An attempt has ended when all its tasks have. When one fails the others are stopped, and the exit code is
        that of the first. One with `overtime` is not ended at its time limit: whoever plans stops it.
        Starting an attempt that already runs, ran or was disowned does nothing.
        An engine that queues itself may take as long as it likes between this and the start; until then it says
        nothing of the attempt, and a stop takes it out of its queue. If that queue takes one back, it has ended
        with cause REQUEUED and waits there as the next attempt; of that nothing is said until this is forgotten.
        """

    def observe(self, attempts: Sequence[Attempt]) -> list[Observation]:
        """What is known of these attempts now: after a restart, or when a report may have been missed.

        A running attempt gives `Started` and is watched from then on. An attempt of which nothing ran is
        disowned, so that it can never run later, and given as `Ended` with cause NOT_STARTED.
        """

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        """This signal now, to all its tasks; KILL what is left after the grace.

        The end is reported as usual; already gone is success. Asked again, the shorter grace counts, and another
        signal is sent too.
        """

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None:
        """The end of these is safely recorded: what was kept to tell it may go."""

    def forget_all_but(self, attempt_ids: Collection[AttemptId]) -> None:
        """After a restart: only these are still of interest."""

    def close(self) -> None:
        """Let go of everything; what runs goes on where capabilities say so."""


@runtime_checkable
class Reports(Protocol):
    """An engine that tells by itself when something changes."""

    def on_observation(self, report: Report) -> None: ...

    def on_nodes_changed(self, changed: Callable[[], None]) -> None: ...


@runtime_checkable
class SaysWhy(Protocol):
    """An engine with a queue of its own, which knows why an attempt still waits there, or does not go on."""

    def waiting(self, attempt_id: AttemptId) -> Waiting | None:
        """None: it does not wait there, or nothing is known. Returns at once."""


@runtime_checkable
class ShowsOthers(Protocol):
    """An engine whose machines others use too, without us."""

    def others(self) -> Sequence[ForeignJob]:
        """Their jobs that are not over, as of a few seconds ago. Returns at once."""


@runtime_checkable
class ChecksRequests(Protocol):
    """An engine that can tell beforehand what it could never run."""

    def check(self, job: Job, data_class: int) -> None:
        """Raises Invalid, with cause and next step. Returns at once; what it does not know now it lets pass."""


@runtime_checkable
class KeepsReservations(Protocol):
    """An engine that sets nodes aside by itself."""

    def reserve(self, wish: Reservation, unix_users: Collection[str]) -> None:
        """Whole nodes, for these users; for nobody, if it has no project. Raises Conflict or EngineUnavailable."""

    def cancel_reservation(self, reservation: Reservation) -> None:
        """Already gone is success. Raises Conflict or EngineUnavailable."""

    def has_reservation(self, reservation: Reservation) -> bool:
        """Whether it still has it, as of a few seconds ago. Unless it is known, yes."""

    def others_reservations(self, ours: Collection[Reservation]) -> list[Reservation]:
        """Those it has besides ours, which were made with its own tools, as of a few seconds ago."""


@runtime_checkable
class DrainsNodes(Protocol):
    """An engine that keeps by itself whether a node may be used."""

    def drain(self, node: str, reason: str) -> None:
        """Start nothing new there. Raises EngineUnavailable."""

    def resume(self, node: str) -> None:
        """Use it again. Raises EngineUnavailable."""


@runtime_checkable
class RecomposesNodes(Protocol):
    """An engine whose nodes can have other GPUs while it runs."""

    def recompose(self, node: str, gpus: Mapping[str, int], *, dry_run: bool = False) -> Recomposition:
        """Begin to give it these GPUs, by type, instead of those it has. What runs there ends first.

        Goes on after a restart. Asked again, the newer wish counts; resuming the node before it is empty abandons
        it. Without any step: it has them already. Raises Conflict or EngineUnavailable.
        """

    def recomposition(self, node: str) -> Recomposition | None:
        """How far it is; None: nothing is being changed there. Returns at once."""


@runtime_checkable
class RunsInside(Protocol):
    """An engine whose running attempts can be entered."""

    def inside(self, attempt: Attempt, command: Sequence[str], terminal: str = "") -> Inside:
        """What to start so that the command (none: a shell) runs where the attempt does: same user, limits,
        devices, environment and folder; it ends with the attempt. `terminal` names the kind of the one it will be
        started on, if any. Raises Conflict where that is not possible now."""


@runtime_checkable
class ExtendsLimits(Protocol):
    """An engine that can let a running attempt run longer."""

    def extend(self, attempt: Attempt, limit_seconds: int) -> None:
        """Its time limit is this now, counted from its start; never a shorter one. OSError when it cannot be kept,
        Conflict when it is refused. An engine that queues itself is told while it waits there, too.

        Told before it is recorded: after a crash in between it runs longer than anybody says, never shorter.
        """


@runtime_checkable
class OpensPorts(Protocol):
    """An engine that can say where a port of a running attempt is reached from here."""

    def listening(self, attempt: Attempt, port: int) -> Listening:
        """Where, if a process of the attempt listens there, and nobody else does. Raises Conflict."""


@runtime_checkable
class RelaysPorts(Protocol):
    """An engine whose machines are others than this one, but can run a program beside a job that leads there."""

    def relay(self, attempt: Attempt) -> Inside:
        """What to start to have a relay into it, which speaks as `engines/relay` says on its standard input and
        output. Raises Conflict or Refused."""


@runtime_checkable
class KnowsDriver(Protocol):
    """An engine whose nodes all have the same GPU driver."""

    def driver_version(self) -> str | None:
        """None: there is none. Returns at once."""


@runtime_checkable
class KeepsLogs(Protocol):
    """An engine whose jobs' output can be read from files."""

    def log_path(self, job_id: JobId, attempt: int, stream: str) -> Path: ...

    def log_order(self, job_id: JobId, attempt: int) -> list[tuple[str, int]]:
        """In which order the streams were written: (stream, up to this byte), as far as it is known."""


@runtime_checkable
class KeepsCheckpoints(Protocol):
    """An engine whose jobs can say by touching a file that they have saved their work."""

    def checkpoint_times(self, attempts: Sequence[Attempt]) -> dict[AttemptId, datetime]:
        """When each last said so: those that have, since they started. Never later than now."""


@runtime_checkable
class TakesSamples(Protocol):
    """An engine that can say what its attempts and nodes use."""

    def sample(self) -> Readings:
        """Of every attempt that runs and of every node, in one go. Called by one thread, every few seconds.

        What cannot be read is None, or left out. Cpus are those kept busy since the call before.
        """


@runtime_checkable
class SamplesNodes(Protocol):
    """An engine that can say how busy its nodes are, but not what its attempts and devices use."""

    def sample_nodes(self) -> dict[str, Reading]:
        """Called by one thread, every few seconds. What cannot be read is None, or left out."""


@runtime_checkable
class SamplesAttempts(Protocol):
    """An engine that samples nodes only, but knows now and then what its attempts use."""

    def sample_attempts(self) -> dict[AttemptId, Reading]:
        """As of a while ago, of some of those that run. Called by one thread, every few seconds. Returns at once.
        Cpus are those kept busy since the look before."""


@runtime_checkable
class Accounts(Protocol):
    """An engine that finds out afterwards what its attempts have used in all."""

    def used(self) -> dict[AttemptId, AttemptUsage | None]:
        """Of attempts whose end was recorded, as far as it is known by now; None: it never will be.

        Some, not all, at a time. May take a while. Told again, also after a restart, until it is `noted`.
        """

    def noted(self, attempt_ids: Iterable[AttemptId]) -> None:
        """What these have used is safely recorded."""
