"""The client's verbs on jobs, and jobs as objects: what `submit` hands back."""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, SupportsInt, Unpack, overload

from heliostat.client.api_types import (
    AccessKeyData,
    Forecast,
    JobData,
    JobExplanation,
    JobFilters,
    LogChunk,
    PortData,
)
from heliostat.client.events import RECONNECT_TIMEOUT_SECONDS
from heliostat.client.exec import (
    ExecProcess,
    ExecResult,
    TerminalInfo,
    TerminalInput,
    encode_terminal_input,
    read_stdin_chunks,
)
from heliostat.client.logs import Logs
from heliostat.client.source_code import source_code_for_rerun
from heliostat.client.transport import ApiResource, Deadline, Query, Transport, idempotency_header
from heliostat.errors import Invalid, ServerUnreachable

if TYPE_CHECKING:
    from heliostat.models import JobState

TERMINAL_JOB_STATES = frozenset({"completed", "failed", "cancelled", "timed_out", "lost"})
"""States that never change again; as words, because importing the models costs a command its speed."""
_ASK_AGAIN_SECONDS = 30.0
_FORECAST_SECONDS = 60.0
_FILTERS = frozenset(JobFilters.__annotations__)
_RENAMED = {"time": "time_limit"}


class JobHandle:
    """A job of the server. Its properties are what was last heard of it; `refresh()` asks again."""

    __slots__ = ("_data", "_transport", "id")

    def __init__(self, transport: Transport, job_id: int, data: JobData | None = None) -> None:
        self._transport = transport
        self._data = data
        self.id = job_id

    def __repr__(self) -> str:
        return f"<Job {self.id} {self._data['state'] if self._data else '(not asked yet)'}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __int__(self) -> int:
        return self.id

    @property
    def data(self) -> JobData:
        """All fields, as the API gives them."""
        if self._data is None:
            self.refresh()
        assert self._data is not None  # noqa: S101 - refresh has set it
        return self._data

    @property
    def state(self) -> "JobState":
        from heliostat.models import JobState

        return JobState(self.data["state"])

    @property
    def is_terminal(self) -> bool:
        return self.data["state"] in TERMINAL_JOB_STATES

    @property
    def ok(self) -> bool:
        """It has completed: exit code 0."""
        return self.data["state"] == "completed"

    @property
    def exit_code(self) -> int | None:
        return self.data["exit_code"]

    @property
    def reason(self) -> str | None:
        """Why it waits, or why it ended as it did."""
        return self.data["reason"]

    @property
    def forecast(self) -> Forecast | None:
        """When it will start, if it waits and that is known."""
        return self.data.get("forecast")

    @property
    def name(self) -> str | None:
        """None when it is another's job that you may not look into."""
        return self.data["name"]

    @property
    def user(self) -> str:
        return self.data["user"]

    @property
    def project(self) -> str:
        return self.data["project"]

    @property
    def gpus(self) -> float:
        """Of one task: a whole number, or a part of one GPU."""
        return self.data["gpus"]

    @property
    def gpu_type(self) -> str | None:
        return self.data["gpu_type"]

    @property
    def cpus(self) -> int:
        return self.data["cpus"]

    @property
    def memory_mib(self) -> int:
        return self.data["memory_mib"]

    @property
    def time_limit_seconds(self) -> int | None:
        return self.data["time_limit_seconds"]

    @property
    def tasks(self) -> int:
        return self.data["tasks"]

    @property
    def priority(self) -> int:
        return self.data["priority"]

    @property
    def priority_class(self) -> str:
        return self.data["priority_class"]

    @property
    def preemptions(self) -> int:
        """How often it was sent back to the queue for others."""
        return self.data["preemptions"]

    @property
    def array_id(self) -> int | None:
        return self.data["array_id"]

    @property
    def array_index(self) -> int | None:
        return self.data["array_index"]

    @property
    def attempt(self) -> int:
        """Number of the newest attempt; 0: none yet."""
        return self.data["attempt"]

    @property
    def node(self) -> str | None:
        return self.data["node"]

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(self.data["devices"])

    @property
    def submitted_at(self) -> datetime:
        return datetime.fromisoformat(self.data["submitted_at"])

    @property
    def started_at(self) -> datetime | None:
        return _when(self.data["started_at"])

    @property
    def checkpointed_at(self) -> datetime | None:
        """When it last said that it has saved its work."""
        return _when(self.data["checkpointed_at"])

    @property
    def ended_at(self) -> datetime | None:
        return _when(self.data["ended_at"])

    def refresh(self) -> "JobHandle":
        """Asks the server again."""
        self._data = Jobs(self._transport).get(self.id).data
        return self

    def wait(self, timeout: float | None = None) -> "JobHandle":
        """Until the job is over. Raises TimeoutError when it is not after `timeout` seconds."""
        Jobs(self._transport).wait([self], timeout)
        return self

    def logs(self, stream: str = "both", *, attempt: int | None = None) -> str:
        """What it has printed so far; with "both", as it was written."""
        return Logs(self._transport).text(self.id, stream, attempt=attempt)

    def follow(self, stream: str = "both") -> Iterator[LogChunk]:
        """What it prints, from the start and as it comes, until it is over."""
        yield from Logs(self._transport).follow(self.id, stream)
        self.refresh()

    def cancel(self, *, force: bool = False) -> "JobHandle":
        return self._take(Jobs(self._transport).cancel(self.id, force=force))

    def hold(self) -> "JobHandle":
        return self._take(Jobs(self._transport).hold(self.id))

    def release(self) -> "JobHandle":
        return self._take(Jobs(self._transport).release(self.id))

    def requeue(self) -> "JobHandle":
        return self._take(Jobs(self._transport).requeue(self.id))

    def mark_checkpointed(self) -> "JobHandle":
        return self._take(Jobs(self._transport).mark_checkpointed(self.id))

    def why(self, *, what_if: bool = False) -> JobExplanation:
        """Why it waits and when it will start."""
        return Jobs(self._transport).why(self.id, what_if=what_if)

    def update_data(self, data: JobData) -> None:
        """Takes over what the server has said elsewhere."""
        self._data = data

    def _take(self, told: "JobHandle") -> "JobHandle":
        self._data = told.data
        return self


class JobArray(Sequence[JobHandle]):
    """The jobs of one array, in the order of their indexes."""

    def __init__(self, transport: Transport, array_id: int, job_ids: Iterable[int]) -> None:
        self._transport = transport
        self.id = array_id
        self._jobs = [JobHandle(transport, job_id) for job_id in job_ids]

    def __repr__(self) -> str:
        return f"<JobArray {self.id} of {len(self)} jobs>"

    @overload
    def __getitem__(self, index: int) -> JobHandle: ...
    @overload
    def __getitem__(self, index: slice) -> list[JobHandle]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._jobs[index]

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def ok(self) -> bool:
        return all(job.ok for job in self)

    def wait(self, timeout: float | None = None) -> "JobArray":
        """Until all are over. Raises TimeoutError when they are not after `timeout` seconds."""
        Jobs(self._transport).wait(self, timeout)
        return self

    def cancel(self, *, force: bool = False) -> int:
        """How many of them this stops."""
        return Jobs(self._transport).cancel_array(self.id, force=force)


JobHandleList = list[JobHandle]
JobIdList = list[int]


class Jobs(ApiResource):
    def get(self, job: SupportsInt) -> JobHandle:
        """Raises NotFound when there is none, or none that you may see."""
        data: JobData = self._transport.call("GET", f"/jobs/{int(job)}")
        return JobHandle(self._transport, data["id"], data)

    def list(self, *, limit: int | None = None, **filters: Unpack[JobFilters]) -> Iterator[JobHandle]:
        """Jobs that fit all filters, newest first; pages are fetched as you go.

        Filters: state (one or several), user, project, name, array_id, node, submitted_after,
        submitted_before, unfinished.
        """
        found = self._pages("/jobs", _filter_query(filters), limit)
        return (JobHandle(self._transport, data["id"], data) for data in found)

    def cancel(self, job: SupportsInt, *, force: bool = False) -> JobHandle:
        """Stops it: TERM, its grace, KILL, for the whole tree of processes; with `force` KILL at once."""
        return self._act(job, "cancel", [("force", force or None)])

    def cancel_many(self, jobs: Iterable[SupportsInt], *, force: bool = False) -> int:
        """How many of them this stops; those that are over already are left alone."""
        return self._cancel({"job_ids": [int(job) for job in jobs]}, force)

    def cancel_array(self, array_id: int, *, force: bool = False) -> int:
        return self._cancel({"array_id": array_id}, force)

    def hold(self, job: SupportsInt) -> JobHandle:
        """Keeps a waiting job from starting."""
        return self._act(job, "hold")

    def release(self, job: SupportsInt) -> JobHandle:
        return self._act(job, "release")

    def requeue(self, job: SupportsInt) -> JobHandle:
        """Stops its attempt and queues it again."""
        return self._act(job, "requeue")

    def mark_checkpointed(self, job: SupportsInt | None = None) -> JobHandle:
        """Says that a running job has just saved its work; from within a job, that job."""
        return self._act(_this_job() if job is None else job, "checkpoint")

    def extend(self, job: SupportsInt, time: str | int) -> JobHandle:
        """So much longer than its time limit says now: "2h", or seconds."""
        return self._act(job, "extend", body={"time": time})

    def wait(self, jobs: Iterable[SupportsInt], timeout: float | None = None) -> JobHandleList:
        """Until all are over. Raises TimeoutError when they are not after `timeout` seconds."""
        handles = {int(job): self._handle(job) for job in jobs}
        deadline = Deadline(timeout)
        unfinished = list(handles)
        while unfinished:
            answer = self._wait_once(unfinished, deadline)
            for data in answer["finished"]:
                handles[data["id"]].update_data(data)
            unfinished = answer["unfinished"]
            if unfinished and deadline.is_expired:
                raise TimeoutError(f"{len(unfinished)} of {len(handles)} jobs are not over after {timeout} s")
        return list(handles.values())

    def history(
        self, *, since: datetime | str | None = None, until: datetime | str | None = None, anonymous: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Jobs that are over and were submitted in that time, oldest first, as they come. Admins only."""
        query = [("from", since), ("to", until), ("anonymous", anonymous or None)]
        with self._transport.stream_lines("/history", query) as lines:
            for count, line in enumerate(lines):
                if not line.endswith(b"\n"):
                    break
                said = json.loads(line)
                if said == {"jobs": count}:
                    return
                yield said
        raise ServerUnreachable(
            "The export was cut short.", "Try again; the server's log may say why: server.log."
        )

    def why(self, job: SupportsInt, *, what_if: bool = False) -> JobExplanation:
        """Why a job waits and when it will start; with `what_if`, also which other request would start earlier."""
        path, query = f"/jobs/{int(job)}/why", [("what_if", what_if or None)]
        told: JobExplanation = self._transport.call("GET", path, query=query, timeout_seconds=_FORECAST_SECONDS)
        return told

    def provenance(self, job: SupportsInt) -> dict[str, Any]:
        """What is kept of how to repeat a job: `code`, `machines`, `request`, `rerun_of`, `reruns`."""
        answer: dict[str, Any] = self._transport.call("GET", f"/jobs/{int(job)}/record")
        return answer

    def diff(self, first: SupportsInt, second: SupportsInt) -> dict[str, Any]:
        """What differed between two jobs: `differences` and the sections that are the `same`."""
        answer: dict[str, Any] = self._transport.call("GET", f"/jobs/{int(first)}/diff/{int(second)}")
        return answer

    def rerun(self, job: SupportsInt, *, idempotency_key: str | None = None, **changes: Any) -> dict[str, Any]:
        """The same job once more but for the changes, in the API's fields; None takes one away: `job`, `notes`."""
        changes = {_RENAMED.get(name, name): value for name, value in changes.items()}
        body = {
            "changes": changes,
            **source_code_for_rerun(changes.get("upload"), lambda: self._folder_now(job, changes)),
        }
        answer: dict[str, Any] = self._transport.call(
            "POST", f"/jobs/{int(job)}/rerun", body, headers=idempotency_header(idempotency_key)
        )
        return answer

    def exec(
        self, job: SupportsInt, command: Sequence[str], *, stdin: bytes | IO[bytes] | None = None
    ) -> ExecResult:
        """Runs a command inside a running job of one's own, to its end."""
        return self.start_exec(job, command, stdin=stdin).read_to_end()

    def start_exec(
        self, job: SupportsInt, command: Sequence[str], *, stdin: bytes | IO[bytes] | None = None
    ) -> ExecProcess:
        """The same as it goes: what it prints, and after the last of it the `exit_code`."""
        return ExecProcess(self._transport, int(job), {"command": list(command)}, read_stdin_chunks(stdin))

    def start_terminal(
        self, job: SupportsInt, terminal: TerminalInfo, typed: Iterable[TerminalInput], command: Sequence[str] = ()
    ) -> ExecProcess:
        """The same on a terminal: a shell, or a command. `typed` is read in a thread of its own."""
        request = {"command": list(command), "terminal": terminal._asdict()}
        return ExecProcess(self._transport, int(job), request, encode_terminal_input(typed))

    def get_port(self, job: SupportsInt, port: int) -> PortData:
        """Where a port of a running job of one's own is found in a browser."""
        answer: PortData = self._transport.call("GET", f"/jobs/{int(job)}/ports/{int(port)}")
        return answer

    def create_port_key(self, job: SupportsInt, port: int) -> AccessKeyData:
        """The same for a program: it sends the key as `Authorization: Bearer KEY`."""
        answer: AccessKeyData = self._transport.call("POST", f"/jobs/{int(job)}/ports/{int(port)}/key", {})
        return answer

    def _act(self, job: SupportsInt, verb: str, query: Query = (), body: object = None) -> JobHandle:
        data = self._transport.call("POST", f"/jobs/{int(job)}/{verb}", body, query=query)
        return JobHandle(self._transport, data["id"], data)

    def _cancel(self, which: dict[str, Any], force: bool) -> int:
        body = {**which, "force": True} if force else which
        count: int = self._transport.call("POST", "/jobs/cancel", body, may_repeat=True)["count"]
        return count

    def _handle(self, job: SupportsInt) -> JobHandle:
        return job if isinstance(job, JobHandle) else JobHandle(self._transport, int(job))

    def _wait_once(self, job_ids: JobIdList, deadline: Deadline) -> dict[str, Any]:
        """One question; asked again while the server restarts."""
        patience = Deadline(RECONNECT_TIMEOUT_SECONDS)
        while True:
            seconds = deadline.remaining_seconds(_ASK_AGAIN_SECONDS)
            body = {"job_ids": job_ids, "timeout_seconds": seconds}
            try:
                answer: dict[str, Any] = self._transport.call(
                    "POST", "/jobs/wait", body, may_repeat=True, timeout_seconds=seconds + 30
                )
                return answer
            except ServerUnreachable:
                if patience.is_expired or deadline.is_expired:
                    raise
            time.sleep(deadline.remaining_seconds(0.2))

    def _folder_now(self, job: SupportsInt, changes: Mapping[str, Any]) -> str | None:
        """The folder it will run in, where that is one of this machine."""
        if not self._transport.address.is_local_socket:
            return None
        request = {**self.get(job).data["request"], **changes}
        return None if request.get("upload") else request.get("workdir")


def _filter_query(filters: JobFilters) -> list[tuple[str, object]]:
    """The filters of GET /jobs; a state may be one or several."""
    unknown = sorted(filters.keys() - _FILTERS)
    if unknown:
        raise TypeError(f"jobs have no filter {unknown[0]!r}; they have: {', '.join(sorted(_FILTERS))}")
    query: list[tuple[str, object]] = [(name, value) for name, value in filters.items() if name != "state"]
    states = filters.get("state") or ()
    return query + [("state", state) for state in ([states] if isinstance(states, str) else states)]


def _this_job() -> int:
    number = os.environ.get("HELIOSTAT_JOB_ID", "")
    if not number.isdecimal():
        raise Invalid("This does not run in a job.", "Say which job has saved its work.")
    return int(number)


def _when(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
