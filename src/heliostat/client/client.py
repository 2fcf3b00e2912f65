"""The `Client` class: submit and wait for jobs, with one attribute for each resource of the API."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, SupportsInt, Unpack, overload

from heliostat.client.accounts import Auth, Departments, Projects, Tokens, Users
from heliostat.client.address import ServerAddress, find_address
from heliostat.client.announcements import Announcements
from heliostat.client.api_types import Finding, JobFields, JobOptions, PauseDetails, ServerStatus
from heliostat.client.environments import Environments
from heliostat.client.events import Events
from heliostat.client.files import Files
from heliostat.client.images import Images
from heliostat.client.jobs import JobArray, JobHandle, Jobs
from heliostat.client.logs import Logs
from heliostat.client.monitoring import Monitoring
from heliostat.client.nodes import Nodes
from heliostat.client.notebooks import Notebooks
from heliostat.client.notifications import Notifications
from heliostat.client.queue import Queue
from heliostat.client.request_bodies import job_body
from heliostat.client.reservations import Reservations
from heliostat.client.schedules import Schedules
from heliostat.client.services import Services
from heliostat.client.sessions import Sessions
from heliostat.client.slurm import Slurm
from heliostat.client.source_code import with_source_code
from heliostat.client.stats import Stats
from heliostat.client.sweeps import Sweeps
from heliostat.client.transport import Transport, idempotency_header
from heliostat.client.uploads import ProgressCallback, upload_folder, with_upload_id
from heliostat.client.workflows import Workflows

Command = str | Sequence[str]


class Client:
    """Client of a Heliostat server, local or remote. Threads may share one client.

    >>> client = Client()
    >>> job = client.submit("python train.py", gpus=1, memory="16G", time="4h").wait()
    >>> job.ok, job.exit_code, job.logs()
    >>> [job.id for job in client.jobs.list(state="running")]
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        home: str | os.PathLike[str] | None = None,
        on_notice: Callable[[str], None] | None = None,
    ) -> None:
        """Without arguments: HELIOSTAT_URL and HELIOSTAT_TOKEN, a stored login, or this machine's socket.

        `on_notice` is called with a notice of the server that concerns all responses: it is paused, or Slurm does
        not answer.
        """
        transport = self._transport = Transport(find_address(url, token, home))
        transport.on_notice = on_notice
        self.announcements = Announcements(transport)
        self.auth = Auth(transport)
        self.departments = Departments(transport)
        self.environments = Environments(transport)
        self.events = Events(transport)
        self.files = Files(transport)
        self.images = Images(transport)
        self.jobs = Jobs(transport)
        self.logs = Logs(transport)
        self.monitoring = Monitoring(transport)
        self.nodes = Nodes(transport)
        self.notebooks = Notebooks(transport)
        self.notifications = Notifications(transport)
        self.projects = Projects(transport)
        self.queue = Queue(transport)
        self.reservations = Reservations(transport)
        self.schedules = Schedules(transport)
        self.services = Services(transport)
        self.sessions = Sessions(transport)
        self.slurm = Slurm(transport)
        self.stats = Stats(transport)
        self.sweeps = Sweeps(transport)
        self.tokens = Tokens(transport)
        self.users = Users(transport)
        self.workflows = Workflows(transport)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection of this thread; the client can still be used."""
        self._transport.close()

    @property
    def address(self) -> ServerAddress:
        """Where the server is reached."""
        return self._transport.address

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
        """Submits a job; with `array` ("0-99%8"), one job for each index.

        Options are those of `JobOptions`: gpus, memory ("16G" or MiB), time ("4h" or seconds), tasks, workdir,
        env… On the machine of the server, a job runs in the current directory unless `workdir` is given. With
        `upload`, a folder, it runs in a copy of that folder. A second call with the same `idempotency_key` returns
        the same job. Without a key each call submits one new job, even if the request had to be sent twice.
        """
        body = self._body({"command": command, "array": array, **options})
        response = self._transport.call("POST", "/jobs", body, headers=idempotency_header(idempotency_key))
        if array is not None:
            return JobArray(self._transport, response["array_id"], response["job_ids"])
        return JobHandle(self._transport, response["id"], response)

    def submit_many(
        self,
        jobs: Iterable[JobFields | Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
        record: bool = True,
    ) -> list[JobHandle]:
        """Submits all jobs, or none if one is invalid, in one request and one transaction."""
        bodies = [self._body({**fields, "record": False}) for fields in jobs]
        response = self.submit_bodies(bodies, idempotency_key=idempotency_key, record=record)
        return [JobHandle(self._transport, job_id) for job_id in response["job_ids"]]

    def submit_bodies(
        self, bodies: list[dict[str, Any]], *, idempotency_key: str | None = None, record: bool = True
    ) -> dict[str, Any]:
        """As `submit_many`, with unchecked fields of the API; returns `{"count", "job_ids", "array_ids"}`."""
        body = with_source_code({"jobs": bodies}, record, None)  # once for all jobs: it may be large
        response: dict[str, Any] = self._transport.call(
            "POST", "/jobs/bulk", body, headers=idempotency_header(idempotency_key)
        )
        return response

    def preview(
        self, command: Command | None = None, *, array: str | None = None, **options: Unpack[JobOptions]
    ) -> dict[str, Any]:
        """As `submit`, without submitting: the server makes all checks. Returns `{"count", "jobs"}`, the jobs as
        they would be submitted, one of each array. A folder to `upload` is not uploaded."""
        fields = {"command": command, "array": array, **options, "record": None, "upload": None}
        return self.preview_bodies([self._with_workdir(job_body(fields))])

    def preview_bodies(self, bodies: list[dict[str, Any]]) -> dict[str, Any]:
        """As `preview`, with unchecked fields of the API."""
        response: dict[str, Any] = self._transport.call(
            "POST", "/jobs/bulk", {"jobs": bodies}, query=[("dry_run", True)], may_repeat=True
        )
        return response

    def wait(
        self, jobs: SupportsInt | Iterable[SupportsInt], timeout: float | None = None, *, check: bool = False
    ) -> list[JobHandle]:
        """Waits until one job or all of several have ended. Raises WaitTimedOut after `timeout` seconds.

        With `check`, raises JobFailed if a job has not completed.
        """
        return self.jobs.wait(jobs, timeout, check=check)

    def upload(self, folder: str | os.PathLike[str], *, progress: ProgressCallback | None = None) -> str:
        """Uploads the files of a folder that the server does not have; returns an id for the `upload` of jobs.

        Skips files that .gitignore and .heliostatignore exclude. `progress` is called with the bytes sent and the
        total. If the server becomes unreachable, retries for a minute and sends only the missing files.
        """
        return upload_folder(self._transport, folder, progress)

    def status(self, timeout: float = 10.0) -> ServerStatus:
        """Version, engine and address of the server, and the number of jobs by state."""
        response: ServerStatus = self._transport.call("GET", "/status", timeout_seconds=timeout)
        return response

    def doctor(self, *, probe: bool = False) -> list[Finding]:
        """Checks the installation. With `probe`, on Slurm, also runs a small job on a node of each partition."""
        method, timeout = ("POST", 180.0) if probe else ("GET", 60.0)
        findings: list[Finding] = self._transport.call(method, "/doctor", timeout_seconds=timeout)["findings"]
        return findings

    def pause_details(self) -> PauseDetails:
        """Whether and why the server is paused, and the running jobs that it does not know. For admins."""
        details: PauseDetails = self._transport.call("GET", "/pause")
        return details

    def resume(self, unknown_jobs: Literal["stop", "leave"] | None = None) -> None:
        """Ends the pause. Raises Conflict if jobs run that the database does not know, unless `unknown_jobs` says
        what becomes of them. For admins."""
        self._transport.call("POST", "/resume", {"unknown_jobs": unknown_jobs}, timeout_seconds=120.0)

    def _body(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        folder, record = fields.get("upload") or fields.get("workdir"), fields.get("record")
        options = {
            name: value for name, value in with_upload_id(self._transport, fields).items() if name != "record"
        }
        return with_source_code(self._with_workdir(job_body(options)), record, folder)

    def _with_workdir(self, body: dict[str, Any]) -> dict[str, Any]:
        workdir = body.get("workdir") or self.address.default_workdir()
        return body if workdir is None or "upload" in body else {**body, "workdir": workdir}
