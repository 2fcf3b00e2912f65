"""The verbs on jobs and the server."""

import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Unpack, overload

from heliostat.client.address import Address, find_address
from heliostat.client.bodies import filter_query, job_body
from heliostat.client.cluster import ClusterVerbs
from heliostat.client.environments import EnvironmentVerbs
from heliostat.client.files import FileVerbs
from heliostat.client.history import HistoryVerbs
from heliostat.client.images import ImageVerbs
from heliostat.client.inside import InsideVerbs
from heliostat.client.jobs import Deadline, JobArray, JobHandle
from heliostat.client.logs import (
    PATIENCE_SECONDS,
    STREAMS,
    Follower,
    Log,
    follow_events,
    past_events,
    read_together,
)
from heliostat.client.news import NewsVerbs
from heliostat.client.notebooks import NotebookVerbs
from heliostat.client.notices import NoticeVerbs
from heliostat.client.pages import pages
from heliostat.client.people import PeopleVerbs
from heliostat.client.queue import QueueVerbs
from heliostat.client.records import RecordVerbs, with_record
from heliostat.client.schedules import ScheduleVerbs
from heliostat.client.services import ServiceVerbs
from heliostat.client.sessions import SessionVerbs
from heliostat.client.shapes import (
    Event,
    Finding,
    JobData,
    JobFields,
    JobFilters,
    JobOptions,
    LogPart,
    Status,
)
from heliostat.client.slurm import SlurmVerbs
from heliostat.client.stats import StatsVerbs
from heliostat.client.sweeps import SweepVerbs
from heliostat.client.transport import Query, Transport
from heliostat.client.uploads import UploadVerbs
from heliostat.client.workflows import WorkflowVerbs
from heliostat.errors import Invalid, ServerUnreachable

_ASK_AGAIN_SECONDS = 30.0

Command = str | Sequence[str]
JobRef = int | JobHandle


class Client(
    ClusterVerbs,
    PeopleVerbs,
    QueueVerbs,
    HistoryVerbs,
    StatsVerbs,
    NewsVerbs,
    SlurmVerbs,
    InsideVerbs,
    ImageVerbs,
    UploadVerbs,
    RecordVerbs,
    EnvironmentVerbs,
    ScheduleVerbs,
    NoticeVerbs,
    WorkflowVerbs,
    SweepVerbs,
    SessionVerbs,
    NotebookVerbs,
    FileVerbs,
    ServiceVerbs,
):
    """A Heliostat server, on this machine or elsewhere. Threads may share one client.

    >>> job = Client().submit("python train.py", gpus=1, memory="16G", time="4h").wait()
    >>> job.ok, job.exit_code, job.logs()
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, home: str | os.PathLike[str] | None = None
    ) -> None:
        """Without arguments: HELIOSTAT_URL and HELIOSTAT_TOKEN, a stored login, or this machine's socket."""
        self._transport = Transport(find_address(url, token, home))

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    @property
    def address(self) -> Address:
        return self._transport.address

    # --- jobs

    @overload
    def submit(
        self,
        command: Command | None = None,
        *,
        array: None = None,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> JobHandle: ...
    @overload
    def submit(
        self,
        command: Command | None = None,
        *,
        array: str,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> JobArray: ...
    def submit(
        self,
        command: Command | None = None,
        *,
        array: str | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> JobHandle | JobArray:
        """Puts a job into the queue; with `array` ("0-99%8"), one for each index.

        Options are those of `JobOptions`: gpus, memory ("16G" or MiB), time ("4h" or seconds), tasks, workdir,
        env… On the server's own machine a job runs in the current directory unless `workdir` says otherwise; with
        `upload`, a folder, it runs in a copy of that. The
        same `idempotency_key` again gives the same job again; without one, each call is a new job even when it
        had to be sent twice.
        """
        body = self._body({"command": command, "array": array, **options})
        answer = self._transport.call("POST", "/jobs", body, headers=_key(idempotency_key))
        if array is not None:
            return JobArray(self, answer["array_id"], answer["job_ids"])
        return JobHandle(self, answer["id"], answer)

    def submit_many(
        self,
        jobs: Iterable[JobFields | Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
        record: bool = True,
    ) -> list[JobHandle]:
        """All of them or none, in one request and one transaction."""
        bodies = [self._body({**fields, "record": False}) for fields in jobs]
        answer = self.submit_bodies(bodies, idempotency_key=idempotency_key, record=record)
        return [JobHandle(self, job_id) for job_id in answer["job_ids"]]

    def submit_bodies(
        self, bodies: list[dict[str, Any]], *, idempotency_key: str | None = None, record: bool = True
    ) -> dict[str, Any]:
        """As `submit_many`, with the API's own fields unchecked; answers `{"count", "job_ids", "array_ids"}`."""
        body = with_record({"jobs": bodies}, record, None)  # once for all: it may be large
        answer: dict[str, Any] = self._transport.call("POST", "/jobs/bulk", body, headers=_key(idempotency_key))
        return answer

    def job(self, job_id: int) -> JobHandle:
        """Raises NotFound when there is none, or none that you may see."""
        return JobHandle(self, job_id, self.job_data(job_id))

    def job_data(self, job_id: int) -> JobData:
        answer: JobData = self._transport.call("GET", f"/jobs/{int(job_id)}")
        return answer

    def jobs(self, *, limit: int | None = None, **filters: Unpack[JobFilters]) -> Iterator[JobHandle]:
        """Jobs that fit all filters, newest first; pages are fetched as you go.

        Filters: state (one or several), user, project, name, array_id, node, submitted_after,
        submitted_before, unfinished.
        """
        query = filter_query(filters)
        return (JobHandle(self, data["id"], data) for data in pages(self._transport, "/jobs", query, limit))

    def cancel(self, job: JobRef, *, force: bool = False) -> JobHandle:
        """Stops it: TERM, its grace, KILL, for the whole tree of processes; with `force` KILL at once."""
        return self._act(job, "cancel", [("force", True)] if force else ())

    def cancel_many(self, jobs: Iterable[JobRef], *, force: bool = False) -> int:
        """How many of them this stops; those that are over already are left alone."""
        return self._cancel({"job_ids": [_id(job) for job in jobs]}, force)

    def cancel_array(self, array_id: int, *, force: bool = False) -> int:
        return self._cancel({"array_id": array_id}, force)

    def hold(self, job: JobRef) -> JobHandle:
        """Keeps a waiting job from starting."""
        return self._act(job, "hold")

    def release(self, job: JobRef) -> JobHandle:
        return self._act(job, "release")

    def requeue(self, job: JobRef) -> JobHandle:
        """Stops its attempt and queues it again."""
        return self._act(job, "requeue")

    def checkpointed(self, job: JobRef | None = None) -> JobHandle:
        """Says that a running job has just saved its work; from within a job, that job."""
        return self._act(_this_job() if job is None else job, "checkpoint")

    def wait(self, jobs: Iterable[JobRef], timeout: float | None = None) -> list[JobHandle]:
        """Until all are over. Raises TimeoutError when they are not after `timeout` seconds."""
        handles = {_id(job): job if isinstance(job, JobHandle) else JobHandle(self, job) for job in jobs}
        deadline = Deadline(timeout)
        unfinished = list(handles)
        while unfinished:
            answer = self._wait_once(unfinished, deadline)
            for data in answer["finished"]:
                handles[data["id"]].learn(data)
            unfinished = answer["unfinished"]
            if unfinished and deadline.is_past:
                raise TimeoutError(f"{len(unfinished)} of {len(handles)} jobs are not over after {timeout} s")
        return list(handles.values())

    def logs(self, job: JobRef, stream: str = "both", *, offset: int = 0, attempt: int | None = None) -> str:
        """What it has printed so far, from that byte on; with "both", as it was written."""
        if stream != "both":
            return b"".join(self.read_log(job, stream, offset=offset, attempt=attempt)).decode("utf-8", "replace")
        starts = {one: self.log_part(job, one, offset=offset, limit=0, attempt=attempt).offset for one in STREAMS}
        parts = [part for _, part in self.read_logs_together(job, starts, attempt=attempt)]
        return b"".join(parts).decode("utf-8", "replace")

    def read_logs_together(
        self, job: JobRef, starts: Mapping[str, int], *, attempt: int | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """(stream, bytes) of both streams from these bytes on, in the order they were written."""
        return read_together(self._transport, _id(job), starts, attempt)

    def read_log(
        self, job: JobRef, stream: str = "stdout", *, offset: int = 0, attempt: int | None = None
    ) -> Iterator[bytes]:
        """The bytes of one stream, piece by piece. A negative offset counts from the end."""
        return Log(self._transport, _id(job), stream, attempt).read(offset)

    def log_part(
        self,
        job: JobRef,
        stream: str = "stdout",
        *,
        offset: int = 0,
        limit: int | None = None,
        attempt: int | None = None,
    ) -> LogPart:
        """One piece of one stream, and how long the stream is."""
        return Log(self._transport, _id(job), stream, attempt).part(offset, limit)

    def follow(
        self, job: JobRef, stream: str = "both", *, offset: int = 0, attempt: int | None = None
    ) -> Follower:
        """LogChunks as they are printed, until the job is over; goes on when the server was restarted."""
        return Follower(self._transport, _id(job), stream, attempt).start_at(offset)

    def events(
        self,
        job: JobRef | None = None,
        *,
        after: int | None = None,
        follow: bool = False,
        limit: int | None = None,
    ) -> Iterator[Event]:
        """What happened, oldest first; with `follow`, without end."""
        job_id = None if job is None else _id(job)
        if follow:
            return follow_events(self._transport, after, job_id)
        return islice(past_events(self._transport, after, job_id), limit)

    # --- the server

    def status(self, timeout: float = 10.0) -> Status:
        answer: Status = self._transport.call("GET", "/status", timeout_seconds=timeout)
        return answer

    def doctor(self, *, probe: bool = False) -> list[Finding]:
        """With `probe`, on Slurm, after a tiny job has looked from one node of each partition."""
        method, patience = ("POST", 180.0) if probe else ("GET", 60.0)
        findings: list[Finding] = self._transport.call(method, "/doctor", timeout_seconds=patience)["findings"]
        return findings

    def _act(self, job: JobRef, verb: str, query: Query = ()) -> JobHandle:
        data = self._transport.call("POST", f"/jobs/{_id(job)}/{verb}", query=query)
        return JobHandle(self, data["id"], data)

    def _cancel(self, which: dict[str, Any], force: bool) -> int:
        body = {**which, "force": True} if force else which
        count: int = self._transport.call("POST", "/jobs/cancel", body, may_repeat=True)["count"]
        return count

    def _body(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        folder, asked = fields.get("upload") or fields.get("workdir"), fields.get("record")
        given = {name: value for name, value in self._with_code(fields).items() if name != "record"}
        return with_record(self._at_home(job_body(given)), asked, folder)

    def _at_home(self, body: dict[str, Any]) -> dict[str, Any]:
        workdir = body.get("workdir") or self.address.default_workdir()
        return body if workdir is None or "upload" in body else {**body, "workdir": workdir}

    def _wait_once(self, job_ids: list[int], deadline: Deadline) -> dict[str, Any]:
        """One question; asked again while the server restarts."""
        patience = Deadline(PATIENCE_SECONDS)
        while True:
            seconds = deadline.left(_ASK_AGAIN_SECONDS)
            body = {"job_ids": job_ids, "timeout_seconds": seconds}
            try:
                answer: dict[str, Any] = self._transport.call(
                    "POST", "/jobs/wait", body, may_repeat=True, timeout_seconds=seconds + 30
                )
                return answer
            except ServerUnreachable:
                if patience.is_past or deadline.is_past:
                    raise
            time.sleep(deadline.left(0.2))


def _key(given: str | None) -> dict[str, str]:
    return {"Idempotency-Key": given or str(uuid.uuid4())}


def _this_job() -> int:
    number = os.environ.get("HELIOSTAT_JOB_ID", "")
    if not number.isdecimal():
        raise Invalid("This does not run in a job.", "Say which job has saved its work.")
    return int(number)


def _id(job: JobRef) -> int:
    return job.id if isinstance(job, JobHandle) else int(job)
