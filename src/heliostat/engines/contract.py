"""What every engine promises.

An engine runs attempts somewhere. It decides nothing: the controller says what to start and stop, the engine
reports what became of it. Calls return at once, may be repeated, and take many items where that is cheaper.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar, runtime_checkable

from heliostat.engines.account_sync import AccountSync
from heliostat.engines.exec import ExecCommand
from heliostat.engines.job_files import FolderListing, LogChunk, OpenFile
from heliostat.models import (
    Attempt,
    AttemptId,
    AttemptUsage,
    ForeignJob,
    Job,
    JobId,
    JobState,
    Node,
    Observation,
    Recomposition,
    Reservation,
    SampleBatch,
    WaitReason,
)
from heliostat.models.sessions import ListeningSocket

P = TypeVar("P", bound=asyncio.Protocol)
ObservationCallback = Callable[[Sequence[Observation]], None]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do beyond starting and stopping."""

    has_own_queue: bool = False  # takes every job at once, and decides when and where it runs
    enforces_array_limit: bool = False  # takes all of an array at once, and lets no more run than its limit
    survives_restart: bool = True  # attempts go on while Heliostat is down
    runs_containers: bool = False  # runs jobs in containers
    provides_environments: bool = False  # gives jobs software that was built for them
    runs_on_server_host: bool = False  # on this machine: to ask something inside a job costs nothing
    samples_attempts: bool = True  # `sample` tells of every attempt, with its devices, at any time


@dataclass(frozen=True, slots=True)
class Finding:
    """What an examination of an installation has found, good or bad."""

    check: str
    level: str  # ok, warning, problem
    message: str
    hint: str | None = None


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

    def forget_all_except(self, attempt_ids: Collection[AttemptId]) -> None:
        """After a restart: only these are still of interest."""

    def set_observation_callback(self, report: ObservationCallback) -> None:
        """What becomes of attempts is told there from now on, as soon as it is known."""

    def set_nodes_changed_callback(self, changed: Callable[[], None]) -> None:
        """Called when `nodes` would answer something else."""

    def sample(self) -> SampleBatch:
        """What every running attempt and every node uses, in one go. Called by one thread, every few seconds.

        What cannot be read is None, or left out. Cpus are those kept busy since the call before.
        """

    def close(self) -> None:
        """Let go of everything; what runs goes on where capabilities say so."""


class Endpoint(Protocol):
    """A port of a running attempt. Nothing is sent before it is proven that a process of the attempt listens
    there, and nobody else does."""

    def check(self, *, again: bool = True) -> ListeningSocket:
        """Where it listens. Unless `again`, what was seen once may still count: to look may take a while.
        Raises Conflict, EngineUnavailable or TooManyRequests. For any thread but that of the event loop."""

    async def open(self, protocol: Callable[[], P]) -> P:
        """A connection. Raises Conflict or EngineUnavailable."""

    def exchange(self, request: bytes, seconds: float, most_bytes: int, *, first_line: bool = False) -> bytes:
        """What it answers, up to the end of the connection, of so many bytes, or of the first line; of an empty
        request, nothing but that it takes a connection. For any thread but that of the event loop.
        Raises Conflict, EngineUnavailable or OSError (TimeoutError once the time is over)."""


@runtime_checkable
class RunsPrograms(Protocol):
    """An engine whose attempts are real programs, with files, ports and room for a further command (local and
    Slurm; attempts of the simulated one only take time). None of this is a path of the machine that asks."""

    def read_log(self, job_id: JobId, attempt: int, stream: str, offset: int, limit: int) -> LogChunk:
        """From any byte; a negative offset counts from the end. What is not written yet is empty.
        Raises OSError."""

    def read_log_order(self, job_id: JobId, attempt: int) -> list[tuple[str, int]]:
        """In which order the streams were written: (stream, up to this byte), as far as it is known."""

    def log_folder(self, job_id: JobId) -> str | None:
        """Where inotify notices that more is in the logs; None: whoever follows them asks now and then."""

    def has_job_files(self, job_id: JobId, name: str = "") -> bool:
        """Whether its logs and files are still there; or, of a name, whether it has left such a folder."""

    def list_job_files(self, job_id: JobId, path: str) -> FolderListing:
        """What lies there in the folder that it runs in, if that is its own. Raises NotFound or Conflict."""

    def open_job_file(self, job_id: JobId, path: str) -> OpenFile:
        """A plain file of the job's user there. Raises NotFound or Conflict."""

    def read_job_file(self, job_id: JobId, name: str, most_bytes: int, *, end: bool = False) -> str:
        """What its user has left as `work/…` or `checkpoints/…`: the beginning, or the end, if it is longer;
        nothing if there is no such file."""

    def work_folder(self, job_id: JobId) -> str:
        """The folder of its own that it runs in, as its processes see it."""

    def exec(self, attempt: Attempt, command: Sequence[str], terminal: str = "") -> ExecCommand:
        """What to start so that the command (none: a shell) runs where the attempt does: same user, limits,
        devices, environment and folder; it ends with the attempt. `terminal` names the kind of the one it will be
        started on, if any. Raises Conflict where that is not possible now."""

    def endpoint(self, attempt: Attempt, port: int) -> Endpoint:
        """A way to this port inside the attempt. Returns at once."""

    def session_port(self, attempt: Attempt) -> int | None:
        """On which its own server has said it listens, if it is a session or a service. That proves nothing."""

    def attach_endpoints(self) -> None:
        """Connections live on the event loop that runs now."""

    async def detach_endpoints(self) -> None:
        """Before that loop ends."""

    def extend_time_limit(self, attempt: Attempt, limit_seconds: int) -> None:
        """Its time limit is this now, counted from its start; never a shorter one. OSError when it cannot be kept,
        Conflict when it is refused. An engine that queues itself is told while it waits there, too.

        Told before it is recorded: after a crash in between it runs longer than anybody says, never shorter.
        """


@runtime_checkable
class HasOwnQueue(Protocol):
    """An engine with a queue of its own, which others use too, and which accounts for what was used (Slurm)."""

    def wait_reason(self, attempt_id: AttemptId) -> WaitReason | None:
        """Why it still waits there, or does not go on. None: it does not wait there, or nothing is known.
        Returns at once."""

    def foreign_jobs(self) -> Sequence[ForeignJob]:
        """Jobs of others, without us, that are not over, as of a few seconds ago. Returns at once."""

    def final_usage(self) -> dict[AttemptId, AttemptUsage | None]:
        """Of attempts whose end was recorded, what they used in all, as far as it is known by now; None: it never
        will be.

        Some, not all, at a time. May take a while. Told again, also after a restart, until it is `noted`.
        """

    def acknowledge_usage(self, attempt_ids: Iterable[AttemptId]) -> None:
        """What these have used is safely recorded."""


@runtime_checkable
class ChecksRequests(Protocol):
    """An engine that can tell beforehand what it could never run (Slurm, by its partitions)."""

    def check_request(self, job: Job, data_class: int) -> None:
        """Raises Invalid, with cause and next step. Returns at once; what it does not know now it lets pass."""


@runtime_checkable
class SupportsReservations(Protocol):
    """An engine that sets nodes aside by itself (Slurm, which others use too)."""

    def reserve(self, wish: Reservation, unix_users: Collection[str]) -> None:
        """Whole nodes, for these users; for nobody, if it has no project. Raises Conflict or EngineUnavailable."""

    def cancel_reservation(self, reservation: Reservation) -> None:
        """Already gone is success. Raises Conflict or EngineUnavailable."""

    def has_reservation(self, reservation: Reservation) -> bool:
        """Whether it still has it, as of a few seconds ago. Unless it is known, yes."""

    def foreign_reservations(self, ours: Collection[Reservation]) -> list[Reservation]:
        """Those it has besides ours, which were made with its own tools, as of a few seconds ago."""


@runtime_checkable
class DrainsNodes(Protocol):
    """An engine that keeps by itself whether a node may be used (Slurm)."""

    def drain(self, node: str, reason: str) -> None:
        """Start nothing new there. Raises EngineUnavailable."""

    def resume(self, node: str) -> None:
        """Use it again. Raises EngineUnavailable."""


@runtime_checkable
class RecomposesNodes(Protocol):
    """An engine whose nodes can have other GPUs while it runs (Slurm with dynamic nodes)."""

    def recompose(self, node: str, gpus: Mapping[str, int], *, dry_run: bool = False) -> Recomposition:
        """Begin to give it these GPUs, by type, instead of those it has. What runs there ends first.

        Goes on after a restart. Asked again, the newer wish counts; resuming the node before it is empty abandons
        it. Without any step: it has them already. Raises Conflict or EngineUnavailable.
        """

    def recomposition_status(self, node: str) -> Recomposition | None:
        """How far it is; None: nothing is being changed there. Returns at once."""


@runtime_checkable
class ReportsCheckpoints(Protocol):
    """An engine that asks us whom to preempt, and whose jobs can say by touching a file that they have saved their
    work (local; on Slurm, Slurm preempts)."""

    def checkpoint_times(self, attempts: Sequence[Attempt]) -> dict[AttemptId, datetime]:
        """When each last said so: those that have, since they started. Never later than now."""


@runtime_checkable
class SyncsAccounts(Protocol):
    """An engine with accounts of its own, which can be kept in step with ours (Slurm)."""

    @property
    def account_sync(self) -> AccountSync: ...


@runtime_checkable
class ProbesNodes(Protocol):
    """An engine that can look at its installation from its nodes (Slurm; the local one has this machine only)."""

    def probe_nodes(self, users: Mapping[str, tuple[int, int]]) -> None:
        """With the uid and gid that each of these has here. Takes seconds; what was found is among the findings
        from then on. Raises EngineUnavailable, or Conflict while another looks."""


class ImageCleanup(Protocol):
    """The removal of images of one person, by a process that is that person."""

    @property
    def owner(self) -> str: ...

    def wait(self) -> list[str]:
        """Until it is done; a line for each image that went."""

    def stop(self) -> None:
        """What it has begun, the next one ends."""


@runtime_checkable
class CleansUpImages(Protocol):
    """An engine on whose machine containers keep the images they have fetched (local; on Slurm each job sweeps the
    store of its node)."""

    def start_image_cleanups(self) -> Iterator[ImageCleanup]:
        """One for each person, if there are limits; each begins when it is asked for."""


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job of another system that is over; sizes are those of all its nodes together."""

    cluster: str
    external_job_id: str  # 12, 12_3 of an array, 12+1 of one that was made of several
    user: str
    account: str
    name: str
    state: JobState
    reason: str | None
    exit_code: int | None
    submitted_at: datetime
    started_at: datetime | None  # None: it never ran
    ended_at: datetime
    cpus: int
    memory_mib: int
    gpus: int
    gpu_type: str | None
    nodes: tuple[str, ...]
    time_limit_seconds: int | None
    qos: str
    usage: AttemptUsage | None = None


class HistoryReader(Protocol):
    """Reads past jobs of another system from lines of one file or one call; counts what it leaves out."""

    @property
    def skipped_counts(self) -> Mapping[str, int]: ...

    def read_jobs(self, lines: Iterable[str]) -> Iterator[PastJob]:
        """In the order of the lines. Raises Invalid when the first of them does not name the fields needed."""
