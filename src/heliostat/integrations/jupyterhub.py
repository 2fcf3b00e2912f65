"""JupyterHub on the queue: `HeliostatSpawner`, whose single-user servers are jobs of their users.

Each is submitted with a token of its own user, never with a right of the hub's: who breaks into a hub finds tokens
of those who logged in, and nothing that acts for everybody.
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
_LOOK_SECONDS = 1.0
_STOP_SECONDS = 120.0  # its grace, and Heliostat's own restart
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - the hub is on another machine; the server lets in only whom the hub sends
_CERTIFICATES = {
    "JUPYTERHUB_SSL_KEYFILE": "keyfile",
    "JUPYTERHUB_SSL_CERTFILE": "certfile",
    "JUPYTERHUB_SSL_CLIENT_CA": "cafile",
}
_OVER = frozenset({"completed", "failed", "cancelled", "timed_out", "lost"})
_PORT = re.compile(rb"^heliostat: port ([0-9]{4,5})$", re.MULTILINE)
_FIRST_BYTES = 64 * 1024  # of the log; what stands before our line comes from the node, not from the server
_LAST_BYTES = 2000
_QUEUED, _STARTING, _RUNNING, _UP = 10, 40, 60, 90


class HeliostatSpawner(Spawner):  # type: ignore[misc]
    """A single-user server: a job from when it is wanted until it is not."""

    heliostat_url = Unicode("", help="Heliostat's address; empty: HELIOSTAT_URL, or this machine's socket.")
    heliostat_url.tag(config=True)
    token_of = CallableTrait(
        None,
        allow_none=True,
        help="From a spawner to its user's token. None: `heliostat_token` in the user's auth_state.",
    ).tag(config=True)
    job = Dict(help="Fields of every job, as of Client.submit: project, image, time, priority_class…")
    job.tag(config=True)
    asked_fields = List(list(FIELDS), help="What people may choose themselves.").tag(config=True)
    environments = Dict(help="Software to choose from: its title, and a file or @DIGEST.").tag(config=True)
    host_of = CallableTrait(
        None, allow_none=True, help="From the name of a node to the host the hub finds it under."
    ).tag(config=True)

    start_timeout = Integer(3600, help="With the time in the queue, in seconds.").tag(config=True)
    http_timeout = Integer(120, help="Until its server answers, once it listens.").tag(config=True)
    env_keep = List(
        ["JUPYTERHUB_SINGLEUSER_APP"], help="Of the hub's variables; paths of its machine mean nothing on a node."
    ).tag(config=True)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._forget()
        self._seen = ServerProgress("It is put into the queue.", 0)

    @default("options_form")  # type: ignore[untyped-decorator]
    def _options_form_default(self) -> str:
        return render_form(self.asked_fields, self.job, list(self.environments))

    @default("options_from_form")  # type: ignore[untyped-decorator]
    def _options_from_form_default(self) -> Callable[[Any], dict[str, Any]]:
        return self._read_form

    @default("apply_user_options")  # type: ignore[untyped-decorator]
    def _apply_user_options_default(self) -> Callable[..., None]:
        return lambda *_: None  # they are read where the job is made

    def _read_form(self, sent: Any) -> dict[str, Any]:
        asked = read_form(sent, self.asked_fields)
        try:
            parse_user_options(asked, self.asked_fields, self.environments)
        except Invalid as error:
            raise ValueError(_sentence(error)) from error
        return asked

    # --- what the hub keeps over its own restart

    def _forget(self) -> None:
        self.job_name, self.job_id, self.attempt = "", 0, 0

    def clear_state(self) -> None:
        super().clear_state()
        self._forget()

    def get_state(self) -> dict[str, Any]:
        known = {"job_name": self.job_name, "job_id": self.job_id, "attempt": self.attempt}
        return {**super().get_state(), **(known if self.job_name else {})}

    def load_state(self, state: dict[str, Any]) -> None:
        super().load_state(state)
        self.job_name, self.job_id = state.get("job_name", ""), state.get("job_id", 0)
        self.attempt = state.get("attempt", 0)

    def _note(self) -> None:
        """Now, not when it has started: a hub that dies in between finds the job."""
        self.orm_spawner.state = self.get_state()
        self.user.db.commit()

    # --- start, poll, stop

    async def start(self) -> tuple[str, int]:
        try:
            body = await self._body()
            self.job_name = str(body["name"])
            self._note()
            self.job_id = await self._ask(partial(_submit, body=body))
            self._note()
        except HeliostatError as error:
            raise _for_people(error) from error
        return await self._until_up()

    async def poll(self) -> int | None:
        """None while it waits or runs, and while nobody can say: a job outlives Heliostat and the hub."""
        try:
            if not await self._find():
                return 0
            job = await self._ask(lambda client: client.jobs.get(self.job_id).data)
            if is_terminal(job):
                return job.get("exit_code") or 0
            if self.attempt and job["attempt"] != self.attempt:
                self.log.warning("Job %s begins anew, elsewhere: it is ended.", self.job_id)
                await self._ask(lambda client: client.jobs.cancel(self.job_id))
                return 1
        except NotFound:
            return 0
        except HeliostatError as error:
            self.log.warning("Job %s cannot be looked at: %s", self.job_id or self.job_name, error)
        return None

    async def stop(self, now: bool = False) -> None:
        """Until its job is over. Already gone is success."""
        deadline = asyncio.get_running_loop().time() + _STOP_SECONDS
        has_asked = False
        while True:
            try:
                if not await self._find() or is_terminal(
                    await self._ask(lambda client: client.jobs.get(self.job_id).data)
                ):
                    return
                if not has_asked:
                    await self._ask(lambda client: client.jobs.cancel(self.job_id, force=now))
                    has_asked = True
            except NotFound:
                return
            except (ServerUnreachable, NotAuthenticated):
                if asyncio.get_running_loop().time() > deadline:
                    self.log.error("Job %s was not ended: helio cancel it.", self.job_id or self.job_name)
                    raise
            if has_asked and asyncio.get_running_loop().time() > deadline:
                return  # Heliostat knows that it is to end, whatever becomes of us
            await asyncio.sleep(_LOOK_SECONDS / 2)

    async def get_url(self) -> str:
        """After a restart of the hub: where it is now; one that waited in the queue is waited for."""
        if self.attempt:
            return str(self.server.url)
        host, port = await asyncio.wait_for(self._until_up(), self.start_timeout)
        return f"{'https' if self.internal_ssl else 'http'}://{host}:{port}{self.server.base_url}"

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        """What the queue says, whenever that is something new. The hub stops listening when the start is over."""
        told = None
        while True:
            if self._seen != told:
                told = self._seen
                yield {"progress": told.percent, "message": told.message}
            await asyncio.sleep(_LOOK_SECONDS / 2)

    async def _until_up(self) -> tuple[str, int]:
        while True:
            try:
                self._seen = await self._ask(partial(check_progress, number=self.job_id))
            except ServerUnreachable:
                self._seen = ServerProgress(
                    "Heliostat does not answer. The job waits there; this is tried again.", 0
                )
            except HeliostatError as error:
                raise _for_people(error) from error
            if self._seen.is_terminal:
                raise _refusal(500, self._seen.message)
            if self._seen.port is not None:
                self.attempt = self._seen.attempt
                self._note()
                return await self._ask(partial(self._host, node=self._seen.node)), self._seen.port
            await asyncio.sleep(_LOOK_SECONDS)

    # --- between the two

    async def _body(self) -> dict[str, Any]:
        """The job, as the API takes it. Secrets are in `env`, which nobody else can read."""
        asked = parse_user_options(self.user_options or {}, self.asked_fields, self.environments)
        fields = {**self.job, **asked}
        here = await self._ask(self._is_here)
        env = {**self.get_env(), **(fields.pop("env", None) or {}), **self._certificates()}
        address = f"{'https' if self.internal_ssl else 'http'}://{self.ip if here else _EVERYWHERE}:0"
        env["JUPYTERHUB_SERVICE_URL"] = address + env["JUPYTERHUB_SERVICE_PREFIX"]
        return {
            **job_body(fields),
            "name": f"jupyterhub-{secrets.token_hex(6)}",
            "script": program_script(JUPYTERHUB_LAUNCHER),
            "command": [*self.cmd, *self.get_args()],
            "env": {name: str(value) for name, value in env.items() if value is not None},
        }

    def _certificates(self) -> dict[str, str]:
        """With `internal_ssl`: what the job needs to prove to the hub that it is itself."""
        if not self.cert_paths:
            return {}
        texts = {name: Path(self.cert_paths[key]).read_text() for name, key in _CERTIFICATES.items()}
        return {"HELIOSTAT_HUB_CERTIFICATES": json.dumps(texts)}

    def _is_here(self, client: Client) -> bool:
        """Whether jobs run on the hub's machine."""
        is_near = client.address.is_local_socket or client.address.host in _LOOPBACK
        return is_near and client.status()["engine"] == "local"

    def _host(self, client: Client, node: str) -> str:
        if self.host_of is not None:
            return str(self.host_of(node))
        return str(self.ip or "127.0.0.1") if self._is_here(client) else node

    async def _find(self) -> int:
        """Its number; one that was submitted just as the hub died is known by its name. 0: there is none."""
        if not self.job_id and self.job_name:
            known = await self._ask(
                lambda client: [one.id for one in client.jobs.list(name=self.job_name, limit=1)]
            )
            self.job_id = known[0] if known else 0
        return self.job_id

    async def _ask(self, ask: Callable[[Client], T]) -> T:
        """As the user, in a thread."""
        token = await self._token()

        def asked() -> T:
            with Client(self.heliostat_url or None, token) as client:
                return ask(client)

        return await asyncio.to_thread(asked)

    async def _token(self) -> str:
        if self.token_of is not None:
            token = await maybe_future(self.token_of(self))
        else:
            token = (await self.user.get_auth_state() or {}).get("heliostat_token")
        if not isinstance(token, str) or not token:
            raise NotAuthenticated(
                f"The hub holds no token of {self.user.name} for Heliostat.",
                "Log out of the hub and in again. For its admin: see HeliostatAuthenticator, or token_of.",
            )
        return token


def _submit(client: Client, body: dict[str, Any]) -> int:
    """Once, however often it has to be sent: its name is one of a kind."""
    number: int = client.submit_bodies([body], idempotency_key=body["name"], record=False)["job_ids"][0]
    return number


def _sentence(error: HeliostatError) -> str:
    fields = " ".join(f"{name}: {what}." for name, what in error.fields.items() if what not in error.message)
    return " ".join(filter(None, [error.message, fields, error.hint]))


def _for_people(error: HeliostatError) -> HTTPError:
    return _refusal(400 if isinstance(error, Invalid) else 500, _sentence(error))


def _refusal(status: int, words: str) -> HTTPError:
    """As the hub shows it."""
    refusal = HTTPError(status, words.replace("%", "%%"))
    refusal.jupyterhub_message = words
    return refusal


@dataclass(frozen=True, slots=True)
class ServerProgress:
    """One look at its job."""

    message: str  # for its user
    percent: int
    attempt: int = 0
    node: str = ""
    port: int | None = None  # where it is proven to listen
    is_terminal: bool = False


def is_terminal(job: JobData) -> bool:
    return job["state"] in _OVER


def check_progress(client: Client, number: int) -> ServerProgress:
    job = client.jobs.get(number).data
    if is_terminal(job):
        return ServerProgress(_last_words(client, job), _UP, is_terminal=True)
    if job["state"] == "starting":
        return ServerProgress(f"Job {number} starts on {job['node']}.", _STARTING)
    if job["state"] != "running":
        return ServerProgress(f"Job {number} waits. {client.jobs.why(number)['sentence']}", _QUEUED)
    port = _proven_port(client, number)
    node, attempt = str(job["node"]), int(job["attempt"])
    if port is None:
        return ServerProgress(f"Job {number} runs on {node}; its server starts.", _RUNNING, attempt, node)
    return ServerProgress(f"Job {number} answers on {node}.", _UP, attempt, node, port)


def _proven_port(client: Client, number: int) -> int | None:
    """What the job says counts only when Heliostat sees a process of this very job listen there."""
    said = _PORT.search(client.logs.read_slice(number, "stdout", limit=_FIRST_BYTES).data)
    if said is None:
        return None
    try:
        return client.jobs.get_port(number, int(said[1]))["port"]
    except Conflict:  # not yet
        return None


def _last_words(client: Client, job: JobData) -> str:
    """What became of it, and the end of its log."""
    why = job.get("reason") or f"exit code {job.get('exit_code')}"
    tail = b"".join(client.logs.read(job["id"], "stderr", offset=-_LAST_BYTES)).decode("utf-8", "replace").strip()
    last = tail.splitlines()[-3:]
    return " ".join([f"Job {job['id']} is over: {job['state']} ({why}).", *last])
