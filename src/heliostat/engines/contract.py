"""The engine interface: the methods of every engine, and the optional abilities of some.

An engine runs attempts. The controller decides what to start and stop; the engine reports what happened. Calls
return at once, may be repeated, and take many items where that is cheaper.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar, runtime_checkable

from heliostat.engines.account_sync import AccountSync
from heliostat.engines.exec import ExecCommand
from heliostat.engines.job_file_reader import FolderListing, LogChunk, OpenFile
from heliostat.models import (
    Attempt,
    AttemptId,
    AttemptUsage,
    EngineOutage,
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
from heliostat.models.gpu_errors import GpuError
from heliostat.models.sessions import ListeningSocket

P = TypeVar("P", bound=asyncio.Protocol)
ObservationCallback = Callable[[Sequence[Observation]], None]
GpuErrorCallback = Callable[[Sequence[GpuError]], None]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Properties of an engine, besides starting and stopping."""

    has_own_queue: bool = False  # accepts every job at once, and decides when and where it runs
    enforces_array_limit: bool = False  # accepts a whole array at once, and enforces its concurrency limit
    survives_restart: bool = True  # attempts continue while Heliostat is down
    runs_containers: bool = False
    provides_environments: bool = False  # jobs can use environments that were built for them
    runs_on_server_host: bool = False  # jobs run on this machine, so probing their ports is cheap
    samples_attempts: bool = True  # `sample` covers every attempt, with its devices, at any time


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of checking an installation."""

    check: str
    level: str  # ok, warning, problem
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class LeftoverAttempt:
    """An attempt of an earlier server, as the engine finds it without the database."""

    id: AttemptId
    is_running: bool  # or may run: the engine cannot tell
    unix_user: str  # empty: unknown
    started_at: datetime | None
    place: str  # "processes 4711, 4712", "Slurm job 815"
    stop_command: str | None = None  # for an admin; None: unknown


class Engine(Protocol):
    name: str
    capabilities: Capabilities

    def nodes(self) -> list[Node]:
        """The current nodes, with the devices that may be allocated."""

    def start(self, attempts: Sequence[Attempt]) -> None:
        """Start each attempt once, all its tasks or none. One that cannot start is reported as ended.

        An attempt has ended when all its tasks have. When one task fails, the others are stopped, and the exit
        code is that of the first failure. With `overtime`, the time limit does not end the attempt: the scheduler
        stops it. Starting an attempt that already runs, ran or was disowned does nothing. An engine with its own
        queue may start the attempt any time later; until then it reports nothing, and a stop removes the attempt
        from that queue. If the queue requeues an attempt, it has ended with cause REQUEUED and waits there as the
        next attempt, which is not reported until this one is forgotten.
        """

    def observe(self, attempts: Sequence[Attempt]) -> list[Observation]:
        """The current state of these attempts: after a restart, or when a report may have been missed.

        A running attempt gives `AttemptStarted` and is watched from then on. One that has ended gives its end, and
        before it its start if that may not have been reported. An attempt that was never started is disowned, so
        that it can never run later, and gives `AttemptEnded` with cause NOT_STARTED.
        """

    def stop(self, attempt: Attempt, grace_seconds: float, signal: str = "TERM") -> None:
        """Send this signal to all tasks now, and KILL to what is left after the grace.

        The end is reported like any other; an attempt that has ended already is success. On a repeated call the
        shorter grace applies, and a different signal is sent as well.
        """

    def forget(self, attempt_ids: Iterable[AttemptId]) -> None:
        """The ends of these attempts are recorded: their files may be removed."""

    def forget_all_except(self, attempt_ids: Collection[AttemptId]) -> None:
        """After a restart: stop all other attempts and remove their files."""

    def recorded_attempts(self) -> set[AttemptId]:
        """After a restart: the attempts of which the engine has files or processes."""

    def find_leftovers(self, attempt_ids: Iterable[AttemptId]) -> list[LeftoverAttempt]:
        """Those of these attempts that were started. Changes nothing."""

    def set_observation_callback(self, report: ObservationCallback) -> None:
        """Report starts and ends of attempts to this function from now on, as soon as they are known."""

    def set_nodes_changed_callback(self, changed: Callable[[], None]) -> None:
        """Call this function when the result of `nodes` has changed."""

    def sample(self) -> SampleBatch:
        """Current usage of all running attempts and nodes. Called by one thread, every few seconds.

        Values that cannot be read are None or missing. Cpus: the average of busy cpus since the previous call.
        """

    def close(self) -> None:
        """Release all resources. Attempts continue if `capabilities.survives_restart`."""


class Endpoint(Protocol):
    """A port of a running attempt. Nothing is sent before it is verified that processes of the attempt, and no
    others, listen there."""

    def check(self, *, again: bool = True) -> ListeningSocket:
        """Where it listens. Without `again`, a cached result may be returned, since a check may take a while.
        Raises Conflict, EngineUnavailable or TooManyRequests. For any thread except that of the event loop."""

    async def open(self, protocol: Callable[[], P]) -> P:
        """A connection. Raises Conflict or EngineUnavailable."""

    def exchange(self, request: bytes, seconds: float, most_bytes: int, *, first_line: bool = False) -> bytes:
        """Send the request and return the response: up to the end of the connection, `most_bytes`, or the first
        line. With an empty request, only check that a connection is accepted. For any thread except that of the
        event loop. Raises Conflict, EngineUnavailable or OSError (TimeoutError after `seconds`)."""


@runtime_checkable
class RunsPrograms(Protocol):
    """An engine whose attempts are real programs, with files, ports and `exec` (local and Slurm; simulated
    attempts run no program). Paths are those of the node, not of the caller's machine."""

    def read_log(self, job_id: JobId, attempt: int, stream: str, offset: int, limit: int) -> LogChunk:
        """Part of a log, from any byte; a negative offset counts from the end. Empty if nothing is written yet.
        Raises OSError."""

    def read_log_order(self, job_id: JobId, attempt: int) -> list[tuple[str, int]]:
        """The order in which the streams were written: (stream, up to this byte), as far as it is known."""

    def log_folder(self, job_id: JobId) -> str | None:
        """The folder to watch with inotify for new log output; None: the logs must be polled."""

    def has_job_files(self, job_id: JobId, name: str = "") -> bool:
        """Whether the job's folder, or the folder `name` in it, still exists."""

    def list_job_files(self, job_id: JobId, path: str) -> FolderListing:
        """A folder below the job's own working directory. Raises NotFound or Conflict."""

    def open_job_file(self, job_id: JobId, path: str) -> OpenFile:
        """A regular file of the job's user there. Raises NotFound or Conflict."""

    def read_job_file(self, job_id: JobId, name: str, most_bytes: int, *, end: bool = False) -> str:
        """A file below the job's folder (`work/…`, `checkpoints/…`): its first bytes or, with `end`, its last.
        Empty if it does not exist."""

    def work_folder(self, job_id: JobId) -> str:
        """The job's own working directory, as its processes see it."""

    def exec(self, attempt: Attempt, command: Sequence[str], terminal: str = "") -> ExecCommand:
        """The program to start so that the command (none: a shell) runs in the attempt: same user, limits,
        devices, environment and folder; it ends with the attempt. `terminal`: the value of TERM, if it runs on a
        terminal. Raises Conflict when that is not possible now."""

    def endpoint(self, attempt: Attempt, port: int) -> Endpoint:
        """This port of the attempt. Returns at once."""

    def session_port(self, attempt: Attempt) -> int | None:
        """The port that the server of a session or service has reported. Not verified."""

    def attach_endpoints(self) -> None:
        """Use the running event loop for connections."""

    async def detach_endpoints(self) -> None:
        """Call before that event loop ends."""

    def extend_time_limit(self, attempt: Attempt, limit_seconds: int) -> None:
        """Set the time limit, counted from the start; a shorter one than before is ignored. Also applies while the
        attempt waits in the engine's own queue. Raises OSError when the limit cannot be stored, Conflict when it
        is refused.

        Called before the new limit is recorded: after a crash in between, the job runs longer than recorded.
        """


@runtime_checkable
class HasOwnQueue(Protocol):
    """An engine with its own queue and accounting, which users may also use without Heliostat (Slurm)."""

    def wait_reason(self, attempt_id: AttemptId) -> WaitReason | None:
        """Why the attempt waits in that queue or is suspended. None: it does not wait, or the reason is unknown.
        Returns at once."""

    def outage(self) -> EngineOutage | None:
        """None: it answers. Returns at once."""

    def forecast_start(self, attempt: Attempt) -> datetime:
        """When the attempt would start if it were submitted now. Submits nothing; may take seconds. Raises
        Conflict or EngineUnavailable."""

    def foreign_jobs(self) -> Sequence[ForeignJob]:
        """Unfinished jobs that were not submitted by Heliostat, a few seconds old. Returns at once."""

    def final_usage(self) -> dict[AttemptId, AttemptUsage | None]:
        """Total usage of attempts whose end was recorded, as far as it is known; None: it will never be known.

        Returns some of them at a time and may take a while. Returned again, also after a restart, until
        `acknowledge_usage`.
        """

    def acknowledge_usage(self, attempt_ids: Iterable[AttemptId]) -> None:
        """The usage of these attempts is recorded."""


@runtime_checkable
class ChecksRequests(Protocol):
    """An engine that can reject jobs at submission which it could never run (Slurm, by its partitions)."""

    def check_request(self, job: Job, data_class: int) -> None:
        """Raises Invalid, with cause and next step. Returns at once; accepts if limits are unknown."""


@runtime_checkable
class SupportsReservations(Protocol):
    """An engine with reservations of its own (Slurm)."""

    def reserve(self, reservation: Reservation, unix_users: Collection[str]) -> None:
        """Reserve whole nodes; without a project, for no user. Raises Conflict or EngineUnavailable."""

    def cancel_reservation(self, reservation: Reservation) -> None:
        """A reservation that does not exist is success. Raises Conflict or EngineUnavailable."""

    def has_reservation(self, reservation: Reservation) -> bool:
        """Whether the engine still has it, as of a few seconds ago. True if unknown."""

    def foreign_reservations(self, ours: Collection[Reservation]) -> list[Reservation]:
        """Reservations other than `ours`, made with the engine's own tools; a few seconds old."""


@runtime_checkable
class DrainsNodes(Protocol):
    """An engine with a drain state of its own for each node (Slurm)."""

    def drain(self, node: str, reason: str) -> None:
        """Start no new jobs on the node. Raises EngineUnavailable."""

    def resume(self, node: str) -> None:
        """Use the node again. Raises EngineUnavailable."""


@runtime_checkable
class RecomposesNodes(Protocol):
    """An engine that can change the GPUs of a node at run time (Slurm with dynamic nodes)."""

    def recompose(self, node: str, gpus: Mapping[str, int], *, dry_run: bool = False) -> Recomposition:
        """Start replacing the node's GPUs by these, by type. Jobs that run there finish first.

        Continues after a restart. A later call replaces the request; resuming the node before it is empty cancels
        it. A result without steps: the node has these GPUs already. Raises Conflict or EngineUnavailable.
        """

    def recomposition_status(self, node: str) -> Recomposition | None:
        """The progress; None: no change is under way. Returns at once."""


@dataclass(frozen=True, slots=True)
class GpuTestStep:
    name: str
    passed: bool | None  # None: not possible here
    detail: str


@runtime_checkable
class WatchesGpus(Protocol):
    """An engine that finds errors of GPUs, and tests them (local)."""

    def set_gpu_error_callback(self, report: GpuErrorCallback) -> None:
        """Report errors to this function from now on, before the ends of the attempts that they hit. Errors for
        which it raises an exception are reported again."""

    def test_gpu(self, card: str) -> list[GpuTestStep]:
        """Test a card that no job uses, up to the first failed step. Takes up to two minutes. Errors are reported
        before it returns. Raises Conflict while another test runs."""


@runtime_checkable
class ReportsCheckpoints(Protocol):
    """An engine whose jobs Heliostat preempts, and whose jobs report checkpoints by touching a file (local; on
    Slurm, Slurm preempts)."""

    def checkpoint_times(self, attempts: Sequence[Attempt]) -> dict[AttemptId, datetime]:
        """The last checkpoint of each attempt that has made one since its start. Never in the future."""


@runtime_checkable
class SyncsAccounts(Protocol):
    """An engine with accounts of its own, which can be synchronized with Heliostat's (Slurm)."""

    @property
    def account_sync(self) -> AccountSync: ...


@runtime_checkable
class ProbesNodes(Protocol):
    """An engine that can check the installation from its nodes (Slurm; the local engine has this machine only)."""

    def probe_nodes(self, users: Mapping[str, tuple[int, int]]) -> None:
        """Probe the nodes. `users`: the uid and gid of each on this machine. Takes seconds; the results are among
        the findings from then on. Raises EngineUnavailable, or Conflict while another probe runs."""


class ImageCleanup(Protocol):
    """The removal of container images of one user, by a process of that user."""

    @property
    def owner(self) -> str: ...

    def wait(self) -> list[str]:
        """Wait until it is done. One line for each removed image."""

    def stop(self) -> None:
        """Stop early. The next cleanup continues."""


@runtime_checkable
class CleansUpImages(Protocol):
    """An engine whose container images are stored on this machine (local; on Slurm each job cleans up the store of
    its node)."""

    def start_image_cleanups(self) -> Iterator[ImageCleanup]:
        """One cleanup for each user, if limits are set; each starts when the iterator reaches it."""


@dataclass(frozen=True, slots=True)
class PastJob:
    """A finished job of another system; amounts are the sum over all its nodes."""

    cluster: str
    external_job_id: str  # 12; in an array 12_3; part of a heterogeneous job 12+1
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
    heliostat_attempt: AttemptId | None = None  # as a Heliostat submitted it, according to its comment


class HistoryReader(Protocol):
    """Reads past jobs of another system from the lines of a file or of a command; counts the lines it skips."""

    @property
    def skipped_counts(self) -> Mapping[str, int]: ...

    def read_jobs(self, lines: Iterable[str]) -> Iterator[PastJob]:
        """In the order of the lines. Raises Invalid when the header line lacks a required field."""
