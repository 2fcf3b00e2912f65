"""Client API for jobs, and the handles `JobHandle` and `JobArray` that `submit` returns."""

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, SupportsInt, Unpack, overload

from heliostat.client.api_types import (
    AccessKeyData,
    Forecast,
    JobData,
    JobExplanation,
    JobFilters,
    LogChunk,
    PortData,
)
from heliostat.client.event_stream import RECONNECT_TIMEOUT_SECONDS
from heliostat.client.exec import (
    ExecProcess,
    ExecResult,
    TerminalInfo,
    TerminalInput,
    encode_terminal_input,
    read_stdin_chunks,
)
from heliostat.client.files import Files
from heliostat.client.handle import Handle
from heliostat.client.logs import Logs
from heliostat.client.notebook_html import html_fields, html_table
from heliostat.client.source_code import source_code_for_rerun
from heliostat.client.stats import JobStats, Stats
from heliostat.client.transport import ApiResource, Deadline, Query, Transport, idempotency_header
from heliostat.errors import Invalid, JobFailed, NotFound, ServerUnreachable, WaitTimedOut

if TYPE_CHECKING:
    from heliostat.models import JobState

TERMINAL_JOB_STATES = frozenset({"completed", "failed", "cancelled", "timed_out", "lost"})
"""States that never change again. Plain strings, because importing the models is slow."""
_LONG_POLL_SECONDS = 30.0
_FORECAST_SECONDS = 60.0
_SHOWN = (
    "name",
    "state",
    "reason",
    "exit_code",
    "gpus",
    "cpus",
    "node",
    "url",
    "submitted_at",
    "started_at",
    "ended_at",
)
_FILTERS = frozenset(JobFilters.__annotations__)
_FIELD_NAMES = {"time": "time_limit"}


class JobHandle(Handle[JobData]):
    """A job on the server. Its properties are those of the last response; `refresh()` updates them."""

    __slots__ = ()
    _title = "Job"

    @property
    def state(self) -> "JobState":
        """pending, running, completed…; a text as well as an enum."""
        from heliostat.models import JobState

        return JobState(self.data["state"])

    @property
    def is_terminal(self) -> bool:
        """Whether it has ended."""
        return self.data["state"] in TERMINAL_JOB_STATES

    @property
    def ok(self) -> bool:
        """Whether it has completed with exit code 0."""
        return self.data["state"] == "completed"

    @property
    def exit_code(self) -> int | None:
        """None until it has ended, and if it ended without an exit code."""
        return self.data["exit_code"]

    @property
    def reason(self) -> str | None:
        """Why it is waiting, or why it ended."""
        return self.data["reason"]

    @property
    def forecast(self) -> Forecast | None:
        """Forecast of its start; None if it is not waiting or there is no forecast."""
        return self.data.get("forecast")

    @property
    def name(self) -> str | None:
        """None for a job of another user that you may not inspect."""
        return self.data["name"]

    @property
    def user(self) -> str:
        """The user who submitted it."""
        return self.data["user"]

    @property
    def project(self) -> str:
        """The project whose share it uses."""
        return self.data["project"]

    @property
    def gpus(self) -> float:
        """GPUs per task: a whole number, or a fraction of one GPU."""
        return self.data["gpus"]

    @property
    def gpu_type(self) -> str | None:
        """The requested GPU type; None: any."""
        return self.data["gpu_type"]

    @property
    def cpus(self) -> int:
        """CPU cores per task."""
        return self.data["cpus"]

    @property
    def memory_mib(self) -> int:
        """Memory per task."""
        return self.data["memory_mib"]

    @property
    def time_limit_seconds(self) -> int | None:
        """None: no limit."""
        return self.data["time_limit_seconds"]

    @property
    def tasks(self) -> int:
        """Number of parallel tasks."""
        return self.data["tasks"]

    @property
    def priority(self) -> int:
        """Jobs with a higher number start first."""
        return self.data["priority"]

    @property
    def priority_class(self) -> str:
        """scavenger, normal, interactive or urgent."""
        return self.data["priority_class"]

    @property
    def preemptions(self) -> int:
        """How often it was preempted."""
        return self.data["preemptions"]

    @property
    def array_id(self) -> int | None:
        """The array that it belongs to."""
        return self.data["array_id"]

    @property
    def array_index(self) -> int | None:
        """Its index in the array."""
        return self.data["array_index"]

    @property
    def attempt(self) -> int:
        """Number of the last attempt; 0: none yet."""
        return self.data["attempt"]

    @property
    def node(self) -> str | None:
        """The node that it runs or ran on."""
        return self.data["node"]

    @property
    def devices(self) -> tuple[str, ...]:
        """The GPUs that it has or had."""
        return tuple(self.data["devices"])

    @property
    def submitted_at(self) -> datetime:
        """When it was submitted."""
        return datetime.fromisoformat(self.data["submitted_at"])

    @property
    def started_at(self) -> datetime | None:
        """When its last attempt started."""
        return _parse_time(self.data["started_at"])

    @property
    def checkpointed_at(self) -> datetime | None:
        """When it last reported a checkpoint."""
        return _parse_time(self.data["checkpointed_at"])

    @property
    def ended_at(self) -> datetime | None:
        """When it ended."""
        return _parse_time(self.data["ended_at"])

    def refresh(self) -> Self:
        """Loads the current data from the server."""
        self._data = Jobs(self._transport).get(self.id).data
        return self

    def wait(self, timeout: float | None = None, *, check: bool = False) -> Self:
        """Waits until the job has ended. Raises WaitTimedOut after `timeout` seconds.

        With `check`, raises JobFailed if the job has not completed.
        """
        Jobs(self._transport).wait([self], timeout, check=check)
        return self

    def logs(self, stream: str = "both", *, attempt: int | None = None) -> str:
        """Its output so far; with "both", in the order in which it was written."""
        return Logs(self._transport).text(self.id, stream, attempt=attempt)

    def follow(self, stream: str = "both") -> Iterator[LogChunk]:
        """Its output from the beginning, as it is printed, until the job ends."""
        yield from Logs(self._transport).follow(self.id, stream)
        self.refresh()

    def results(self, to: str | os.PathLike[str] | None = None) -> list[Path]:
        """Downloads its folder `results` into the folder `to`; default: results-ID. Returns the saved files."""
        return Files(self._transport).save_results(self.id, to or f"results-{self.id}")

    def stats(self) -> JobStats:
        """Its usage over time, a summary, and how efficiently it used its resources."""
        return Stats(self._transport).job(self.id)

    def rerun(self, *, idempotency_key: str | None = None, **changes: Any) -> "JobHandle":
        """Submits it again with changed fields: `job.rerun(gpus=2)`. Returns the new job.

        `client.jobs.rerun` also returns notes on what cannot be the same.
        """
        response = Jobs(self._transport).rerun(self.id, idempotency_key=idempotency_key, **changes)
        return JobHandle(self._transport, response["job"]["id"], response["job"])

    def cancel(self, *, force: bool = False) -> Self:
        """All its processes get TERM and, after its grace period, KILL; with `force`, KILL immediately."""
        return self._update(Jobs(self._transport).cancel(self.id, force=force))

    def hold(self) -> Self:
        """Prevents it from starting while it waits."""
        return self._update(Jobs(self._transport).hold(self.id))

    def release(self) -> Self:
        """Lets it start again after `hold`."""
        return self._update(Jobs(self._transport).release(self.id))

    def requeue(self) -> Self:
        """Stops its attempt and queues it again."""
        return self._update(Jobs(self._transport).requeue(self.id))

    def mark_checkpointed(self) -> Self:
        """Records that it has saved its work."""
        return self._update(Jobs(self._transport).mark_checkpointed(self.id))

    def why(self, *, what_if: bool = False) -> JobExplanation:
        """Why it is waiting and when it will start."""
        return Jobs(self._transport).why(self.id, what_if=what_if)

    def _update(self, other: "JobHandle") -> Self:
        self.update_data(other.data)
        return self

    def _summary(self) -> str:
        return self.data["state"]

    def _repr_html_(self) -> str:
        data: Mapping[str, Any] = self.data
        return html_fields(f"{self._title} {self.id}", {name.replace("_", " "): data.get(name) for name in _SHOWN})


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
        """Whether all jobs have completed with exit code 0."""
        return all(job.ok for job in self)

    def refresh(self) -> "JobArray":
        """Loads the current data of its jobs from the server."""
        current = {job.id: job.data for job in Jobs(self._transport).list(array_id=self.id)}
        for job in self:
            job.update_data(current[job.id])
        return self

    def wait(self, timeout: float | None = None, *, check: bool = False) -> "JobArray":
        """Waits until all jobs have ended. Raises WaitTimedOut after `timeout` seconds.

        With `check`, raises JobFailed if a job has not completed.
        """
        Jobs(self._transport).wait(self, timeout, check=check)
        return self

    def cancel(self, *, force: bool = False) -> int:
        """Returns the number of jobs that are cancelled."""
        return Jobs(self._transport).cancel_array(self.id, force=force)

    def _repr_html_(self) -> str:
        rows = ([job.id, job.array_index, job.data["state"], job.reason] for job in self.refresh())
        return html_table(f"Array {self.id}", ("job", "index", "state", "reason"), rows)


JobHandleList = list[JobHandle]
JobIdList = list[int]


class Jobs(ApiResource):
    def get(self, job: SupportsInt) -> JobHandle:
        """Raises NotFound if the job does not exist or you may not see it."""
        data: JobData = self._transport.call("GET", f"/jobs/{int(job)}")
        return JobHandle(self._transport, data["id"], data)

    def list(self, *, limit: int | None = None, **filters: Unpack[JobFilters]) -> Iterator[JobHandle]:
        """Jobs that match all filters, newest first; pages are fetched as needed.

        Filters: state (one or several), user, project, name, array_id, node, submitted_after,
        submitted_before, unfinished, newest_replicas (of the ended replicas of a service only the newest).
        """
        pages = self._pages("/jobs", _filter_query(filters), limit)
        return (JobHandle(self._transport, data["id"], data) for data in pages)

    def select(
        self,
        *references: SupportsInt | str,
        mine: bool = False,
        name: str | None = None,
        user: str | None = None,
        state: str | None = None,
        unfinished: bool | None = None,
    ) -> JobHandleList:
        """The jobs named by ids, "array:5" and "sweep:3"; with `mine`, `name` or `user`, your jobs, or those of
        that user, that have not ended.

        `state` and `unfinished` apply to all but ids. Each job occurs once, in the order of the references.
        """
        filters: JobFilters = {"state": state, "unfinished": unfinished}
        found = [job for reference in references for job in self._referenced(reference, filters)]
        if mine or name is not None or user is not None:
            owner = user or "me"
            found += self._oldest_first({"state": state, "unfinished": True, "user": owner, "name": name})
        return list(dict.fromkeys(found))

    def cancel(self, job: SupportsInt, *, force: bool = False) -> JobHandle:
        """All processes of the job get TERM and, after its grace period, KILL; with `force`, KILL immediately."""
        return self._act(job, "cancel", [("force", force or None)])

    def cancel_many(self, jobs: Iterable[SupportsInt], *, force: bool = False) -> int:
        """Returns the number of jobs that are cancelled; ended jobs are ignored."""
        return self._cancel({"job_ids": [int(job) for job in jobs]}, force)

    def cancel_array(self, array_id: int, *, force: bool = False) -> int:
        """Returns the number of jobs that are cancelled."""
        return self._cancel({"array_id": array_id}, force)

    def hold(self, job: SupportsInt) -> JobHandle:
        """Prevents a waiting job from starting."""
        return self._act(job, "hold")

    def release(self, job: SupportsInt) -> JobHandle:
        """Lets a held job start."""
        return self._act(job, "release")

    def requeue(self, job: SupportsInt) -> JobHandle:
        """Stops its attempt and queues it again."""
        return self._act(job, "requeue")

    def mark_checkpointed(self, job: SupportsInt | None = None) -> JobHandle:
        """Records that a running job has saved its work. Default: the job that this code runs in."""
        return self._act(_current_job_id() if job is None else job, "checkpoint")

    def keep(self, job: SupportsInt, until: str | datetime) -> JobHandle:
        """Answers that a running job needs its GPUs, although it does not use them now: until a time, or "+4h"."""
        end = until.astimezone().isoformat() if isinstance(until, datetime) else until
        return self._act(job, "keep", body={"until": end})

    def extend(self, job: SupportsInt, time: str | int) -> JobHandle:
        """Adds to its time limit: "2h", or seconds."""
        return self._act(job, "extend", body={"time": time})

    def wait(
        self, jobs: SupportsInt | Iterable[SupportsInt], timeout: float | None = None, *, check: bool = False
    ) -> JobHandleList:
        """Waits until one job or all of several have ended. Raises WaitTimedOut after `timeout` seconds.

        With `check`, raises JobFailed if a job has not completed.
        """
        listed = jobs if isinstance(jobs, Iterable) else [jobs]
        handles = {int(job): self._handle(job) for job in listed}
        deadline = Deadline(timeout)
        unfinished = list(handles)
        while unfinished:
            response = self._wait_once(unfinished, deadline)
            for data in response["finished"]:
                handles[data["id"]].update_data(data)
            unfinished = response["unfinished"]
            if unfinished and deadline.is_expired:
                raise WaitTimedOut(
                    f"{len(unfinished)} of {len(handles)} jobs have not ended after {timeout:g} s.",
                    "The jobs continue; helio ps lists them.",
                )
        if check:
            _check_completed(list(handles.values()))
        return list(handles.values())

    def history(
        self, *, since: datetime | str | None = None, until: datetime | str | None = None, anonymous: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Streams ended jobs that were submitted in this period, oldest first. Admins only."""
        query = [("from", since), ("to", until), ("anonymous", anonymous or None)]
        with self._transport.stream_lines("/history", query) as lines:
            for count, line in enumerate(lines):
                if not line.endswith(b"\n"):
                    break
                record = json.loads(line)
                if record == {"jobs": count}:
                    return
                yield record
        raise ServerUnreachable(
            "The export was cut short.", "Try again. The server's log may contain the cause: server.log."
        )

    def why(self, job: SupportsInt, *, what_if: bool = False) -> JobExplanation:
        """Why a job is waiting and when it will start; with `what_if`, also requests that would start earlier."""
        path, query = f"/jobs/{int(job)}/why", [("what_if", what_if or None)]
        explanation: JobExplanation = self._transport.call(
            "GET", path, query=query, timeout_seconds=_FORECAST_SECONDS
        )
        return explanation

    def provenance(self, job: SupportsInt) -> dict[str, Any]:
        """The record for repeating a job: `code`, `machines`, `request`, `rerun_of`, `reruns`."""
        response: dict[str, Any] = self._transport.call("GET", f"/jobs/{int(job)}/record")
        return response

    def diff(self, first: SupportsInt, second: SupportsInt) -> dict[str, Any]:
        """The `differences` between two jobs, and the sections that are the `same`."""
        response: dict[str, Any] = self._transport.call("GET", f"/jobs/{int(first)}/diff/{int(second)}")
        return response

    def rerun(self, job: SupportsInt, *, idempotency_key: str | None = None, **changes: Any) -> dict[str, Any]:
        """Submits the job again with changed fields of the API; None removes a field. Returns `job`, `notes`."""
        changes = {_FIELD_NAMES.get(name, name): value for name, value in changes.items()}
        body = {
            "changes": changes,
            **source_code_for_rerun(changes.get("upload"), lambda: self._rerun_folder(job, changes)),
        }
        response: dict[str, Any] = self._transport.call(
            "POST", f"/jobs/{int(job)}/rerun", body, headers=idempotency_header(idempotency_key)
        )
        return response

    def exec(
        self, job: SupportsInt, command: Sequence[str], *, stdin: bytes | IO[bytes] | None = None
    ) -> ExecResult:
        """Runs a command inside one of your running jobs and waits for its end."""
        return self.start_exec(job, command, stdin=stdin).read_to_end()

    def start_exec(
        self, job: SupportsInt, command: Sequence[str], *, stdin: bytes | IO[bytes] | None = None
    ) -> ExecProcess:
        """Runs a command inside a job and streams its output; `exit_code` is set after the last chunk."""
        return ExecProcess(self._transport, int(job), {"command": list(command)}, read_stdin_chunks(stdin))

    def start_terminal(
        self, job: SupportsInt, terminal: TerminalInfo, typed: Iterable[TerminalInput], command: Sequence[str] = ()
    ) -> ExecProcess:
        """Runs a shell or a command on a terminal inside a job. `typed` is read in a separate thread."""
        request = {"command": list(command), "terminal": terminal._asdict()}
        return ExecProcess(self._transport, int(job), request, encode_terminal_input(typed))

    def get_port(self, job: SupportsInt, port: int) -> PortData:
        """The address at which a browser reaches a port of your running job."""
        response: PortData = self._transport.call("GET", f"/jobs/{int(job)}/ports/{int(port)}")
        return response

    def create_port_key(self, job: SupportsInt, port: int) -> AccessKeyData:
        """A key for programs, to be sent as `Authorization: Bearer KEY` to the address of the port."""
        response: AccessKeyData = self._transport.call("POST", f"/jobs/{int(job)}/ports/{int(port)}/key", {})
        return response

    def _referenced(self, reference: SupportsInt | str, filters: JobFilters) -> JobHandleList:
        kind, _, number = str(reference if isinstance(reference, str) else int(reference)).rpartition(":")
        if kind not in ("", "array", "sweep") or not (number.isascii() and number.isdecimal()):
            raise Invalid(f"{reference!a} is not a job.", "Write a job id such as 12, or array:5 or sweep:3.")
        if not kind:
            return [self._handle(reference if isinstance(reference, JobHandle) else int(number))]
        array_id = int(number)
        if kind == "sweep":
            array_id = self._transport.call("GET", f"/sweeps/{array_id}")["array_id"]
        found = self._oldest_first({**filters, "array_id": array_id})
        if not found and not any(self.list(array_id=array_id, limit=1)):
            raise NotFound(f"There is no array {array_id}.", "helio ps --all lists the jobs of your arrays.")
        return found

    def _oldest_first(self, filters: JobFilters) -> JobHandleList:
        return [*self.list(**filters)][::-1]

    def _act(self, job: SupportsInt, action: str, query: Query = (), body: object = None) -> JobHandle:
        data = self._transport.call("POST", f"/jobs/{int(job)}/{action}", body, query=query)
        return JobHandle(self._transport, data["id"], data)

    def _cancel(self, selection: dict[str, Any], force: bool) -> int:
        body = {**selection, "force": True} if force else selection
        count: int = self._transport.call("POST", "/jobs/cancel", body, may_repeat=True)["count"]
        return count

    def _handle(self, job: SupportsInt) -> JobHandle:
        return job if isinstance(job, JobHandle) else JobHandle(self._transport, int(job))

    def _wait_once(self, job_ids: JobIdList, deadline: Deadline) -> dict[str, Any]:
        """One long-polling request; repeated while the server restarts."""
        reconnect = Deadline(RECONNECT_TIMEOUT_SECONDS)
        while True:
            seconds = deadline.remaining_seconds(_LONG_POLL_SECONDS)
            body = {"job_ids": job_ids, "timeout_seconds": seconds}
            try:
                response: dict[str, Any] = self._transport.call(
                    "POST", "/jobs/wait", body, may_repeat=True, timeout_seconds=seconds + 30
                )
                return response
            except ServerUnreachable:
                if reconnect.is_expired or deadline.is_expired:
                    raise
            time.sleep(deadline.remaining_seconds(0.2))

    def _rerun_folder(self, job: SupportsInt, changes: Mapping[str, Any]) -> str | None:
        """The folder that the rerun will use, if it is on this machine."""
        if not self._transport.address.is_local_socket:
            return None
        request = {**self.get(job).data["request"], **changes}
        return None if request.get("upload") else request.get("workdir")


def _filter_query(filters: JobFilters) -> list[tuple[str, object]]:
    """The query of GET /jobs; `state` may be one or several states."""
    unknown = sorted(filters.keys() - _FILTERS)
    if unknown:
        raise TypeError(f"jobs have no filter {unknown[0]!r}; they have: {', '.join(sorted(_FILTERS))}")
    query: list[tuple[str, object]] = [(name, value) for name, value in filters.items() if name != "state"]
    states = filters.get("state") or ()
    return query + [("state", state) for state in ([states] if isinstance(states, str) else states)]


def _check_completed(jobs: Sequence[JobHandle]) -> None:
    failed = [job for job in jobs if not job.ok]
    if not failed:
        return
    first = failed[0]
    message = f"Job {first.id} {first.data['state'].replace('_', ' ')}: {first.reason or 'no reason is known'}."
    if len(jobs) > 1:
        message = f"{len(failed)} of {len(jobs)} jobs did not complete. The first: {message}"
    raise JobFailed(message, f"Its output: helio logs {first.id}.")


def _current_job_id() -> int:
    number = os.environ.get("HELIOSTAT_JOB_ID", "")
    if not number.isdecimal():
        raise Invalid("This process does not run in a job.", "Give the id of the job.")
    return int(number)


def _parse_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
