"""HTTP transport: one persistent connection per thread, errors as exceptions, one retry where it is safe."""

import json
import os
import select
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from itertools import islice
from typing import Any
from urllib.parse import quote, urlencode

from heliostat import __version__
from heliostat.client.address import ServerAddress
from heliostat.errors import HeliostatError, Invalid, ServerUnreachable, error_class_for_status

API_PREFIX = "/api/v1"
DEFAULT_TIMEOUT_SECONDS = 120.0
_MAX_SOCKET_PATH_BYTES = 107
_PAGE_SIZE = 200
_IDEMPOTENT = frozenset({"GET", "PUT", "DELETE"})

Query = Iterable[tuple[str, object]]
SendBodyPart = Callable[[bytes | None], None]
JsonObject = dict[str, Any]
JsonObjectList = list[JsonObject]  # an alias, because classes with a method `list` cannot use the type `list`


@dataclass(frozen=True)
class ApiRequest:
    method: str
    path: str  # relative to the root
    body: object = None  # sent as JSON
    query: Query = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    may_repeat: bool = False  # it is idempotent
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    root: str = API_PREFIX


class ApiResponse:
    """A complete response."""

    def __init__(self, response: HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def json(self) -> Any:
        """Its body, parsed; None if it is empty."""
        try:
            return json.loads(self.body) if self.body else None
        except ValueError as error:
            raise HeliostatError("The response is not from a Heliostat server.", "Check the address.") from error


class Transport:
    """Sends requests to one address. Threads, and a process and its forks, may share it."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self.on_notice: Callable[[str], None] | None = None
        self._local = threading.local()

    def call(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        """The JSON of the response."""
        return self.send(ApiRequest(method, path, body, **options)).json()

    def send(self, request: ApiRequest) -> ApiResponse:
        """Sends a request; a connection that the server closed meanwhile is opened again if that is safe."""
        target = self._target(request.path, request.query, request.root)
        content, headers = self._prepare(request.body, request.headers)
        may_repeat = request.may_repeat or request.method in _IDEMPOTENT or "Idempotency-Key" in headers
        reused, connection = self._connection(request.timeout_seconds)
        try:
            try:
                response = _exchange(connection, request.method, target, content, headers)
            except (ConnectionError, HTTPException):
                connection.close()
                if not (reused and may_repeat):
                    raise
                response = _exchange(connection, request.method, target, content, headers)
        except BaseException as error:  # Ctrl-C too: the next request must not read the response to this one
            connection.close()
            del self._local.connection  # it may hold parts of a request
            if isinstance(error, OSError | HTTPException):
                raise unreachable_error(self.address, error) from error
            raise
        if self.on_notice is not None and (notice := response.headers.get("Heliostat-Notice")):
            self.on_notice(notice)
        return _checked(response)

    def post_stream(self, path: str, parts: Iterable[bytes], length: int, timeout_seconds: float = 300.0) -> Any:
        """Streams a long body over a separate connection; returns the JSON of the response."""
        connection = _Connection(self.address, timeout_seconds)
        extra = {"Content-Length": str(length), "Content-Type": "application/octet-stream"}
        _, headers = self._prepare(None, extra)
        try:
            with suppress(
                BrokenPipeError, ConnectionResetError
            ):  # refused while sending: the response has the reason
                connection.request("POST", self._target(path, ()), parts, headers)
            return _checked(ApiResponse(connection.getresponse())).json()
        except (OSError, HTTPException) as error:
            raise unreachable_error(self.address, error) from error
        finally:
            connection.close()

    @contextmanager
    def stream_lines(
        self, path: str, query: Query = (), *, timeout_seconds: float = 60.0
    ) -> Iterator[Iterator[bytes]]:
        """The lines of a streamed response, over a separate connection."""
        with self.open_response(
            path, query, accept="text/event-stream", timeout_seconds=timeout_seconds
        ) as response:
            yield iter(response.readline, b"")

    @contextmanager
    def open_response(
        self, path: str, query: Query = (), *, accept: str = "*/*", timeout_seconds: float = 60.0
    ) -> Iterator[HTTPResponse]:
        """A response to be read in chunks, over a separate connection."""
        connection = _Connection(self.address, timeout_seconds)
        _, headers = self._prepare(None, {"Accept": accept})
        try:
            connection.request("GET", self._target(path, query), headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                _checked(ApiResponse(response))
            yield response
        except (OSError, HTTPException) as error:
            raise unreachable_error(self.address, error) from error
        finally:
            connection.close()

    @contextmanager
    def open_duplex(
        self, path: str, *, timeout_seconds: float = 60.0
    ) -> Iterator[tuple[SendBodyPart, Callable[[], Iterator[bytes]]]]:
        """Sends a body in parts (None: the end) and reads the lines of the response at the same time."""
        connection = _Connection(self.address, timeout_seconds)
        extra = {"Transfer-Encoding": "chunked", "Content-Type": "application/octet-stream"}
        _, headers = self._prepare(None, extra)

        def send(part: bytes | None) -> None:
            if part is None or part:
                connection.send(b"0\r\n\r\n" if part is None else b"%x\r\n%s\r\n" % (len(part), part))

        def lines() -> Iterator[bytes]:
            response = connection.getresponse()
            if response.status != 200:
                _checked(ApiResponse(response))
            connection.set_timeout(None)
            return iter(response.readline, b"")

        try:
            connection.putrequest("POST", self._target(path, ()))
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            connection.auto_open = 0  # data sent after the end must not open a new connection
            yield send, lines
        except (OSError, HTTPException) as error:
            raise unreachable_error(self.address, error) from error
        finally:
            connection.close()

    def close(self) -> None:
        """Closes this thread's connection."""
        connection: _Connection | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()

    def _target(self, path: str, query: Query, root: str = API_PREFIX) -> str:
        parameters = [(name, _as_text(value)) for name, value in query if value is not None]
        return f"{self.address.prefix}{root}{path}" + (f"?{urlencode(parameters)}" if parameters else "")

    def _prepare(self, body: object, extra: Mapping[str, str]) -> tuple[bytes | None, dict[str, str]]:
        headers = {"Accept": "application/json", "User-Agent": f"heliostat/{__version__}"}
        if self.address.token:
            headers["Authorization"] = f"Bearer {self.address.token}"
        headers.update(extra)
        _check_headers(headers)
        if body is None:
            return None, headers
        headers["Content-Type"] = "application/json"
        return json.dumps(body, separators=(",", ":")).encode(), headers

    def _connection(self, timeout_seconds: float) -> "tuple[bool, _Connection]":
        """Whether this thread's connection is open already, and the connection."""
        connection: _Connection | None = getattr(self._local, "connection", None)
        if connection is None or connection.pid != os.getpid():
            connection = self._local.connection = _Connection(self.address, timeout_seconds)
        if connection.was_closed_by_server():
            connection.close()
        connection.set_timeout(timeout_seconds)
        return connection.sock is not None, connection


class ApiResource:
    """Base class of the resources of the API."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def _items(self, path: str, query: Query = ()) -> list[Any]:
        """A list that the server returns in one response."""
        items: list[Any] = self._transport.call("GET", path, query=query)["items"]
        return items

    def _pages(self, path: str, query: Query = (), limit: int | None = None) -> Iterator[Any]:
        """The items of all pages, at most `limit`; pages are requested as needed."""
        return islice(self._all_pages(path, list(query), limit), limit)

    def _all_pages(self, path: str, query: list[tuple[str, object]], limit: int | None) -> Iterator[Any]:
        cursor: str | None = None
        size = _PAGE_SIZE if limit is None else max(1, min(_PAGE_SIZE, limit))
        while True:
            page = self._transport.call("GET", path, query=[*query, ("limit", size), ("cursor", cursor)])
            yield from page["items"]
            cursor = page.get("next_cursor")
            if cursor is None:
                return


class Deadline:
    """A point in time from now; None: never."""

    def __init__(self, seconds: float | None) -> None:
        self._at = None if seconds is None else time.monotonic() + seconds

    def remaining_seconds(self, at_most: float) -> float:
        """At most `at_most`, and never below 0."""
        return at_most if self._at is None else max(0.0, min(at_most, self._at - time.monotonic()))

    @property
    def is_expired(self) -> bool:
        """Whether this time has passed."""
        return self._at is not None and time.monotonic() >= self._at


def idempotency_header(key: str | None = None) -> dict[str, str]:
    """The header that makes it safe to repeat a request; with a random key if none is given."""
    return {"Idempotency-Key": key or str(uuid.uuid4())}


def drop_none(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def quote_path_segment(name: object) -> str:
    """Quotes a name as one segment of a path."""
    return quote(str(name), safe="")


class _Connection(HTTPConnection):
    """HTTP over TCP, TLS or a Unix socket."""

    def __init__(self, address: ServerAddress, timeout_seconds: float) -> None:
        super().__init__(address.host or "localhost", address.port or None, timeout=timeout_seconds)
        self.address = address
        self.pid = os.getpid()
        self.sock: Any = None

    def __del__(self) -> None:
        """Closes the connection of a temporary client, as in `Client().submit(...)`."""
        self.close()

    def connect(self) -> None:
        if self.address.socket is not None:
            self.sock = _connect_unix(os.fspath(self.address.socket), self.timeout)
            return
        super().connect()
        if self.address.tls:
            import ssl

            self.sock = ssl.create_default_context().wrap_socket(self.sock, server_hostname=self.address.host)

    def was_closed_by_server(self) -> bool:
        """An idle connection is readable only after the server has closed it."""
        if self.sock is None:
            return False
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))

    def set_timeout(self, seconds: float | None) -> None:
        self.timeout = seconds
        if self.sock is not None:
            self.sock.settimeout(seconds)


def unreachable_error(address: ServerAddress, error: BaseException) -> ServerUnreachable:
    """The error for a server that cannot be reached, with its cause and the next step."""
    if isinstance(error, TimeoutError):
        return ServerUnreachable(
            f"The server at {address} did not respond in time.", "Check it with `helio doctor`."
        )
    if isinstance(error, PermissionError):
        return ServerUnreachable(
            f"You have no permission to use the socket {address}.",
            "Ask an admin for access, or set HELIOSTAT_HOME to your own installation.",
        )
    if isinstance(error, HTTPException | ConnectionResetError | BrokenPipeError):
        return ServerUnreachable(
            f"The server at {address} closed the connection.", "Check it with `helio status`."
        )
    if address.is_local_socket:
        return ServerUnreachable(f"No Heliostat server is running at {address}.", "Start one with `helio up`.")
    cause = getattr(error, "strerror", None) or error
    return ServerUnreachable(
        f"Cannot connect to a Heliostat server at {address}: {cause}.",
        "Check HELIOSTAT_URL or your `helio login`.",
    )


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            subject = "The token" if name == "Authorization" else name
            raise Invalid(f"{subject} must be one line of ASCII characters.", "Change it and try again.")


def _exchange(
    connection: _Connection, method: str, target: str, content: bytes | None, headers: dict[str, str]
) -> ApiResponse:
    connection.request(method, target, content, headers)
    return ApiResponse(connection.getresponse())


def _checked(response: ApiResponse) -> ApiResponse:
    if response.status < 300:
        return response
    raise _error_from(response)


def _error_from(response: ApiResponse) -> HeliostatError:
    cls = error_class_for_status(response.status)
    try:
        error = json.loads(response.body)["error"]
        return cls(error["message"], error.get("hint"), code=error.get("code"), fields=error.get("fields"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return cls(f"The server responded with status {response.status}.", "Check its log: server.log.")


def _connect_unix(path: str, timeout_seconds: float | None) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_seconds)
        if len(os.fsencode(path)) <= _MAX_SOCKET_PATH_BYTES:
            sock.connect(path)
        else:
            _connect_through_directory(sock, path)
    except BaseException:
        sock.close()
        raise
    return sock


def _connect_through_directory(sock: socket.socket, path: str) -> None:
    """The kernel limits the path to 108 bytes; an open directory makes any path short."""
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    try:
        sock.connect(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
    finally:
        with suppress(OSError):
            os.close(directory)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    isoformat = getattr(value, "isoformat", None)
    return str(isoformat() if isoformat else value)
