"""The address of the server: given, from the environment, this machine's socket, or the stored login."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from heliostat.client.stored_login import read_login
from heliostat.config import DEFAULT_PORT, Home, find_home
from heliostat.errors import Invalid


@dataclass(frozen=True)
class ServerAddress:
    """A Unix socket, or host and port."""

    socket: Path | None = None
    host: str = ""
    port: int = 0
    tls: bool = False
    prefix: str = ""  # path of a reverse proxy in front of the server
    token: str | None = None

    @property
    def is_local_socket(self) -> bool:
        """Whether the server is reached over a Unix socket of this machine."""
        return self.socket is not None

    def default_workdir(self) -> str | None:
        """The current directory if the server is on this machine; None otherwise, as it may not exist there."""
        if not self.is_local_socket:
            return None
        try:
            return os.getcwd()
        except FileNotFoundError:
            return None

    @property
    def is_confidential(self) -> bool:
        """Whether the connection is local or encrypted."""
        return self.is_local_socket or self.tls or self.host in {"localhost", "127.0.0.1", "::1"}

    @property
    def url(self) -> str:
        """In the form that `parse_server_url` reads."""
        return f"unix:{self.socket}" if self.socket is not None else str(self)

    def __str__(self) -> str:
        if self.socket is not None:
            return str(self.socket)
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.prefix}"


def find_address(
    url: str | None = None,
    token: str | None = None,
    home: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> ServerAddress:
    """In this order: arguments, HELIOSTAT_URL, a stored login if this machine has no server, the local socket."""
    if home is not None and url is None:
        return ServerAddress(socket=Home(Path(home).expanduser().absolute()).socket, token=token)
    chosen = url or environ.get("HELIOSTAT_URL")
    if chosen:
        return parse_server_url(chosen, token or _token_for(chosen, environ))
    local = find_home(dict(environ))
    if not environ.get("HELIOSTAT_HOME") and not local.socket.exists():
        stored = read_login(environ)
        if stored:
            return parse_server_url(stored.url, token or stored.token)
    return ServerAddress(socket=local.socket, token=token)


def parse_server_url(url: str, token: str | None = None) -> ServerAddress:
    """`http://host:port`, `https://host`, `unix:/path/heliostat.sock` or plain `host`."""
    parts = _split(url)
    if parts.scheme == "unix":
        return ServerAddress(socket=Path(parts.path).absolute(), token=token)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Invalid(f"{url!r} is not an address of a server.", "Write it like http://gpu1:8470.")
    tls = parts.scheme == "https"
    port = parts.port or (443 if tls else DEFAULT_PORT)
    return ServerAddress(host=parts.hostname, port=port, tls=tls, prefix=parts.path.rstrip("/"), token=token)


def _split(url: str) -> SplitResult:
    has_scheme = url.startswith("unix:") or "://" in url
    try:
        parts = urlsplit(url if has_scheme else f"http://{url}")
        _ = parts.port
    except ValueError as error:
        raise Invalid(
            f"{url!r} is not an address of a server: {error}.", "Write it like http://gpu1:8470."
        ) from error
    return parts


def _token_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The token for this server; a token is never sent to another server."""
    token_url = environ.get("HELIOSTAT_URL") or url
    if environ.get("HELIOSTAT_TOKEN") and parse_server_url(token_url) == parse_server_url(url):
        return environ["HELIOSTAT_TOKEN"]
    stored = read_login(environ)
    return stored.token if stored and parse_server_url(stored.url) == parse_server_url(url) else None
