"""JupyterHub spawner: `HeliostatSpawner` runs single-user servers as jobs of their users.

Each job is submitted with a token of its user; the hub itself has no permissions in Heliostat. An attacker who
breaks into the hub gets only the tokens of users who logged in there.
"""

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from jupyterhub.spawner import Spawner
from jupyterhub.utils import maybe_future
from tornado.web import HTTPError
from traitlets import Callable as CallableTrait
from traitlets import Dict, Integer, List, Unicode, default

from heliostat.client import Client
from heliostat.client.api_types import JobData
from heliostat.client.request_bodies import job_body
from heliostat.errors import Conflict, HeliostatError, Invalid, NotAuthenticated, NotFound, ServerUnreachable
from heliostat.integrations.jupyterhub_options import FIELDS, parse_user_options, read_form, render_form
from heliostat.payloads.archive import JUPYTERHUB_LAUNCHER, program_script

T = TypeVar("T")
_POLL_SECONDS = 1.0
_STOP_SECONDS = 120.0  # includes the job's grace time and a restart of Heliostat
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_ALL_INTERFACES = "0.0.0.0"  # noqa: S104 - the hub is on another machine; the server checks the hub's login
_CERTIFICATES = {
    "JUPYTERHUB_SSL_KEYFILE": "keyfile",
    "JUPYTERHUB_SSL_CERTFILE": "certfile",
    "JUPYTERHUB_SSL_CLIENT_CA": "cafile",
}
_TERMINAL_STATES = frozenset({"completed", "failed", "cancelled", "timed_out", "lost"})
_PORT = re.compile(rb"^heliostat: port ([0-9]{4,5})$", re.MULTILINE)
_FIRST_BYTES = 64 * 1024  # of the log; only output of the node can come before the line with the port
_LAST_BYTES = 2000
_QUEUED, _STARTING, _RUNNING, _UP = 10, 40, 60, 90


class HeliostatSpawner(Spawner):  # type: ignore[misc]
    """Runs a single-user server as a job."""

    heliostat_url = Unicode("", help="URL of Heliostat. Default: HELIOSTAT_URL, or this machine's socket.")
    heliostat_url.tag(config=True)
    token_of = CallableTrait(
        None,
        allow_none=True,
        help="Function from a spawner to its user's token. Default: `heliostat_token` in the user's auth_state.",
    ).tag(config=True)
    job = Dict(help="Fields of every job, as in Client.submit: project, image, time, priority_class…")
    job.tag(config=True)
    asked_fields = List(list(FIELDS), help="Job fields that users can choose in the form.").tag(config=True)
    environments = Dict(help="Environments that users can choose: title, and an environment file or @DIGEST.").tag(
        config=True
    )
    host_of = CallableTrait(
        None, allow_none=True, help="Function from a node's name to the host name or address for the hub."
    ).tag(config=True)

    start_timeout = Integer(
        3600, help="Seconds until the server must have started, including the time in the queue."
    ).tag(config=True)
    http_timeout = Integer(120, help="Seconds until the server must respond, after its port is open.").tag(
        config=True
    )
    env_keep = List(
        ["JUPYTERHUB_SINGLEUSER_APP"],
        help="Variables of the hub to pass on. Paths of the hub's machine are not valid on nodes.",
    ).tag(config=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._forget_job()
        self._progress = ServerProgress("Submitting the job.", 0)

    @default("options_form")  # type: ignore[untyped-decorator]
    def _options_form_default(self) -> str:
        return render_form(self.asked_fields, self.job, list(self.environments))

    @default("options_from_form")  # type: ignore[untyped-decorator]
    def _options_from_form_default(self) -> Callable[[Any], dict[str, Any]]:
        return self._read_form

    @default("apply_user_options")  # type: ignore[untyped-decorator]
    def _apply_user_options_default(self) -> Callable[..., None]:
        return lambda *_: None  # read in _body instead

    def _read_form(self, form_data: Any) -> dict[str, Any]:
        options = read_form(form_data, self.asked_fields)
        try:
            parse_user_options(options, self.asked_fields, self.environments)
        except Invalid as error:
            raise ValueError(_error_text(error)) from error
        return options

    # --- state that the hub keeps across its own restart

    def _forget_job(self) -> None:
        self.job_name, self.job_id, self.attempt = "", 0, 0

    def clear_state(self) -> None:
        super().clear_state()
        self._forget_job()

    def get_state(self) -> dict[str, Any]:
        state = {"job_name": self.job_name, "job_id": self.job_id, "attempt": self.attempt}
        return {**super().get_state(), **(state if self.job_name else {})}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self.job_name, self.job_id = state.get("job_name", ""), state.get("job_id", 0)
        self.attempt = state.get("attempt", 0)

    def _save_state(self) -> None:
        """At once, not after the start: a hub that crashes in between finds the job again."""
        self.orm_spawner.state = self.get_state()
        self.user.db.commit()

    # --- start, poll, stop

    async def start(self) -> tuple[str, int]:
        try:
            body = await self._body()
            self.job_name = str(body["name"])
            self._save_state()
            self.job_id = await self._call(partial(_submit, body=body))
            self._save_state()
        except HeliostatError as error:
            raise _http_error_from(error) from error
        return await self._wait_until_up()

    async def poll(self) -> int | None:
        """None while the job waits or runs, or its state is unknown: a job outlives Heliostat and the hub."""
        try:
            if not await self._find_job_id():
                return 0
            job = await self._call(lambda client: client.jobs.get(self.job_id).data)
            if is_terminal(job):
                return job.get("exit_code") or 0
            if self.attempt and job["attempt"] != self.attempt:
                self.log.warning("Job %s was restarted on another node: cancelling it.", self.job_id)
                await self._call(lambda client: client.jobs.cancel(self.job_id))
                return 1
        except NotFound:
            return 0
        except HeliostatError as error:
            self.log.warning("The state of job %s is unknown: %s", self.job_id or self.job_name, error)
        return None

    async def stop(self, now: bool = False) -> None:
        """Returns when the job has ended. A job that does not exist counts as success."""
        deadline = asyncio.get_running_loop().time() + _STOP_SECONDS
        is_cancelled = False
        while True:
            try:
                if not await self._find_job_id() or is_terminal(
                    await self._call(lambda client: client.jobs.get(self.job_id).data)
                ):
                    return
                if not is_cancelled:
                    await self._call(lambda client: client.jobs.cancel(self.job_id, force=now))
                    is_cancelled = True
            except NotFound:
                return
            except (ServerUnreachable, NotAuthenticated):
                if asyncio.get_running_loop().time() > deadline:
                    job = self.job_id or self.job_name
                    self.log.error("Job %s could not be cancelled. Run: helio cancel %s", job, job)
                    raise
            if is_cancelled and asyncio.get_running_loop().time() > deadline:
                return  # Heliostat has the request and completes it without the hub
            await asyncio.sleep(_POLL_SECONDS / 2)

    async def get_url(self) -> str:
        """Called after a restart of the hub. Waits for a job that is still in the queue."""
        if self.attempt:
            return str(self.server.url)
        host, port = await asyncio.wait_for(self._wait_until_up(), self.start_timeout)
        return f"{'https' if self.internal_ssl else 'http'}://{host}:{port}{self.server.base_url}"

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """Yields each change of the progress. The hub stops reading when the start has finished."""
        last = None
        while True:
            if self._progress != last:
                last = self._progress
                yield {"progress": last.percent, "message": last.message}
            await asyncio.sleep(_POLL_SECONDS / 2)

    async def _wait_until_up(self) -> tuple[str, int]:
        while True:
            try:
                self._progress = await self._call(partial(check_progress, number=self.job_id))
            except ServerUnreachable:
                self._progress = ServerProgress(
                    "Heliostat does not respond. The job is kept; the hub tries again.", 0
                )
            except HeliostatError as error:
                raise _http_error_from(error) from error
            if self._progress.is_terminal:
                raise _http_error(500, self._progress.message)
            if self._progress.port is not None:
                self.attempt = self._progress.attempt
                self._save_state()
                return await self._call(partial(self._host, node=self._progress.node)), self._progress.port
            await asyncio.sleep(_POLL_SECONDS)

    # --- the job and the client

    async def _body(self) -> dict[str, Any]:
        """The job's request body. Secrets are in `env`, which other users cannot read."""
        options = parse_user_options(self.user_options or {}, self.asked_fields, self.environments)
        fields = {**self.job, **options}
        is_local = await self._call(self._runs_jobs_locally)
        env = {**self.get_env(), **(fields.pop("env", None) or {}), **self._certificates()}
        address = f"{'https' if self.internal_ssl else 'http'}://{self.ip if is_local else _ALL_INTERFACES}:0"
        env["JUPYTERHUB_SERVICE_URL"] = address + env["JUPYTERHUB_SERVICE_PREFIX"]
        return {
            **job_body(fields),
            "name": f"jupyterhub-{secrets.token_hex(6)}",
            "script": program_script(JUPYTERHUB_LAUNCHER),
            "command": [*self.cmd, *self.get_args()],
            "env": {name: str(value) for name, value in env.items() if value is not None},
        }

    def _certificates(self) -> dict[str, str]:
        """With `internal_ssl`: certificates by which the job identifies itself to the hub."""
        if not self.cert_paths:
            return {}
        texts = {name: Path(self.cert_paths[key]).read_text() for name, key in _CERTIFICATES.items()}
        return {"HELIOSTAT_HUB_CERTIFICATES": json.dumps(texts)}

    def _runs_jobs_locally(self, client: Client) -> bool:
        """Whether jobs run on the hub's machine."""
        is_local = client.address.is_local_socket or client.address.host in _LOOPBACK
        return is_local and client.status()["engine"] == "local"

    def _host(self, client: Client, node: str) -> str:
        if self.host_of is not None:
            return str(self.host_of(node))
        return str(self.ip or "127.0.0.1") if self._runs_jobs_locally(client) else node

    async def _find_job_id(self) -> int:
        """A job that was submitted while the hub crashed is found by its name. 0: there is none."""
        if not self.job_id and self.job_name:
            ids = await self._call(
                lambda client: [job.id for job in client.jobs.list(name=self.job_name, limit=1)]
            )
            self.job_id = ids[0] if ids else 0
        return self.job_id

    async def _call(self, function: Callable[[Client], T]) -> T:
        """Calls it with a client of the user, in a thread."""
        token = await self._token()

        def call() -> T:
            with Client(self.heliostat_url or None, token) as client:
                return function(client)

        return await asyncio.to_thread(call)

    async def _token(self) -> str:
        if self.token_of is not None:
            token = await maybe_future(self.token_of(self))
        else:
            token = (await self.user.get_auth_state() or {}).get("heliostat_token")
        if not isinstance(token, str) or not token:
            raise NotAuthenticated(
                f"The hub has no Heliostat token of {self.user.name}.",
                "Log out of the hub and log in again. Admins: configure HeliostatAuthenticator or token_of.",
            )
        return token


def _submit(client: Client, body: dict[str, Any]) -> int:
    """Submits the job once, even if the request is repeated: its unique name is the idempotency key."""
    number: int = client.submit_bodies([body], idempotency_key=body["name"], record=False)["job_ids"][0]
    return number


def _error_text(error: HeliostatError) -> str:
    fields = " ".join(f"{name}: {text}." for name, text in error.fields.items() if text not in error.message)
    return " ".join(filter(None, [error.message, fields, error.hint]))


def _http_error_from(error: HeliostatError) -> HTTPError:
    return _http_error(400 if isinstance(error, Invalid) else 500, _error_text(error))


def _http_error(status: int, message: str) -> HTTPError:
    """With the message where the hub's error page reads it."""
    error = HTTPError(status, message.replace("%", "%%"))
    error.jupyterhub_message = message
    return error


@dataclass(frozen=True, slots=True)
class ServerProgress:
    """State of the start, from one poll of the job."""

    message: str  # for the user
    percent: int
    attempt: int = 0
    node: str = ""
    port: int | None = None  # verified: a process of the job listens there
    is_terminal: bool = False


def is_terminal(job: JobData) -> bool:
    return job["state"] in _TERMINAL_STATES


def check_progress(client: Client, number: int) -> ServerProgress:
    job = client.jobs.get(number).data
    if is_terminal(job):
        return ServerProgress(_end_message(client, job), _UP, is_terminal=True)
    if job["state"] == "starting":
        return ServerProgress(f"Job {number} is starting on {job['node']}.", _STARTING)
    if job["state"] != "running":
        return ServerProgress(f"Job {number} is waiting. {client.jobs.why(number)['sentence']}", _QUEUED)
    port = _verified_port(client, number)
    node, attempt = str(job["node"]), int(job["attempt"])
    if port is None:
        return ServerProgress(f"Job {number} is running on {node}. Starting the server.", _RUNNING, attempt, node)
    return ServerProgress(f"The server is ready on {node} (job {number}).", _UP, attempt, node, port)


def _verified_port(client: Client, number: int) -> int | None:
    """The port from the job's output, once Heliostat confirms that a process of this job listens there."""
    match = _PORT.search(client.logs.read_slice(number, "stdout", limit=_FIRST_BYTES).data)
    if match is None:
        return None
    try:
        return client.jobs.get_port(number, int(match[1]))["port"]
    except Conflict:  # not yet
        return None


def _end_message(client: Client, job: JobData) -> str:
    """State, reason and the last lines of the log."""
    reason = job.get("reason") or f"exit code {job.get('exit_code')}"
    tail = b"".join(client.logs.read(job["id"], "stderr", offset=-_LAST_BYTES)).decode("utf-8", "replace").strip()
    last_lines = tail.splitlines()[-3:]
    return " ".join([f"Job {job['id']} has ended: {job['state']} ({reason}).", *last_lines])
