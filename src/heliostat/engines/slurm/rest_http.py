"""HTTP to slurmrestd: kept connections, a time limit, errors that say what to do. Threads may share it."""

import http.client
import json
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import SplitResult, urlsplit

from heliostat.engines.slurm.programs import AWAY, AWAY_HINT, SlurmRefused
from heliostat.engines.slurm.rest_token import TokenFile
from heliostat.errors import EngineUnavailable

_SECONDS = 30.0
SUBMIT_SECONDS = 90.0  # longer than slurmrestd itself waits for slurmctld: what is given up may still be taken
_MOST_KEPT = 4
_REFUSALS = range(2000, 3000)  # slurm/slurm_errno.h: what slurmctld says of a request
_UNREADABLE = 9001


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    content: dict[str, Any]

    def refusal(self) -> SlurmRefused | EngineUnavailable | None:
        """What its `errors` come to, whatever the status says; None: there are none."""
        errors = [error for error in self.content.get("errors") or () if isinstance(error, dict)]
        if not errors:
            return None
        numbers = {error.get("error_number", error.get("error_code")) for error in errors}
        said = _words(errors)
        is_no = self.status == 400 or any(number in _REFUSALS or number == _UNREADABLE for number in numbers)
        if is_no and not any(words in said.lower() for words in AWAY):
            return SlurmRefused(said)
        return EngineUnavailable(f"Slurm does not answer slurmrestd: {said}.", AWAY_HINT)


class RestApi:
    """One slurmrestd, and the token that opens it."""

    def __init__(self, address: str, token: TokenFile, user: str | None = None) -> None:
        self._lock = threading.Lock()
        self._kept: list[http.client.HTTPConnection] = []
        self.address, self.token_file, self._user = address, token, user

    @property
    def is_in_the_open(self) -> bool:
        """Whether the token crosses a network that others may listen to."""
        where = urlsplit(self.address)
        return where.scheme == "http" and where.hostname not in ("localhost", "127.0.0.1", "::1")

    def get(self, path: str) -> Answer:
        return self._ask("GET", path)

    def delete(self, path: str) -> Answer:
        return self._ask("DELETE", path)

    def submit(self, path: str, body: object, user: str | None) -> Answer:
        """As this user. Never sent twice: after EngineUnavailable it may have arrived all the same."""
        connection = _connection(self.address, SUBMIT_SECONDS)
        try:
            content = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogateescape")
            return self._exchange(connection, "POST", path, content, user)
        finally:
            connection.close()

    def close(self) -> None:
        """The connections that were kept; more are made when needed."""
        with self._lock:
            kept, self._kept = self._kept, []
        for connection in kept:
            connection.close()

    def __del__(self) -> None:
        """Whoever asks once, as the doctor does, need not close it."""
        self.close()

    def _ask(self, method: str, path: str) -> Answer:
        """Once more, if a connection of before was closed in the meantime: both do no more the second time."""
        with self._lock:
            kept = self._kept.pop() if self._kept else None
        if kept is not None:
            try:
                return self._keeping(kept, method, path)
            except EngineUnavailable as error:
                if not isinstance(error.__cause__, ConnectionError | http.client.HTTPException):
                    raise
        return self._keeping(_connection(self.address, _SECONDS), method, path)

    def _keeping(self, connection: http.client.HTTPConnection, method: str, path: str) -> Answer:
        try:
            answer = self._exchange(connection, method, path)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            if len(self._kept) < _MOST_KEPT:
                self._kept.append(connection)
                return answer
        connection.close()
        return answer

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        content: bytes | None = None,
        user: str | None = None,
    ) -> Answer:
        headers = self._headers(user)
        if content is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            status, said = response.status, response.read()
        except TimeoutError as error:
            raise EngineUnavailable(f"slurmrestd at {self.address} gave no answer in time.", AWAY_HINT) from error
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or type(error).__name__
            raise EngineUnavailable(f"slurmrestd at {self.address} does not answer: {why}.", AWAY_HINT) from error
        return self._read(status, said)

    def _read(self, status: int, said: bytes) -> Answer:
        try:
            content = json.loads(said.decode("utf-8", "replace"), strict=False)
        except ValueError:
            content = None
        if isinstance(content, dict):
            return Answer(status, content)
        if status == 401:
            message = f"slurmrestd does not accept the token in {self.token_file.path}."
            raise EngineUnavailable(message, "Make a new one: scontrol token. `helio doctor` says what is wrong.")
        if status == 404:
            message = f"slurmrestd at {self.address} does not know the API v0.0.38."
            raise EngineUnavailable(message, "Start it with -s openapi/v0.0.38,openapi/dbv0.0.38.")
        raise EngineUnavailable(f"slurmrestd at {self.address} answers {status} and no JSON.", AWAY_HINT)

    def _headers(self, user: str | None) -> dict[str, str]:
        token = self.token_file.token()
        if token.expires_at is not None and token.expires_at <= datetime.now(UTC):
            message = f"The token in {self.token_file.path} has expired."
            raise EngineUnavailable(
                message, "Make a new one: scontrol token; Heliostat takes it without a restart."
            )
        name = user or self._user or token.user
        return {"X-SLURM-USER-NAME": name, "X-SLURM-USER-TOKEN": token.text, "Accept": "application/json"}


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, seconds: float) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _connection(address: str, seconds: float) -> http.client.HTTPConnection:
    """Of `http://host:6820`, `https://host:6820` or `unix:/path`: checked when the settings are read."""
    where: SplitResult = urlsplit(address)
    if where.scheme == "unix":
        return _UnixConnection(where.path, seconds)
    make = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    return make(where.hostname or "localhost", where.port or 6820, timeout=seconds)


def _words(errors: Iterable[dict[str, Any]]) -> str:
    """The first that says something: Slurm's own words, as its tools would print them."""
    said = [str(error.get("error") or "") for error in errors]
    described = [str(error.get("description") or "") for error in errors]
    first = next((words for words in said if words and words != "Unspecified error"), "")
    return (first or next(filter(None, described), "it does not say why"))[:200]
