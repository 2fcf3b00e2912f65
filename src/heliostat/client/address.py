"""The address of the server and the stored login (URL and token)."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

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


@dataclass(frozen=True)
class StoredLogin:
    """The login that `helio login` stores."""

    url: str
    token: str
    token_id: int | None = None  # for revoking it at logout


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


def login_path(environ: Mapping[str, str] = os.environ) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "heliostat" / "login.json"


def read_login(environ: Mapping[str, str] = os.environ) -> StoredLogin | None:
    """The stored login; None if there is none or it cannot be read."""
    try:
        stored = json.loads(login_path(environ).read_text(encoding="utf-8"))
        return StoredLogin(str(stored["url"]), str(stored["token"]), stored.get("token_id"))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_login(login: StoredLogin, environ: Mapping[str, str] = os.environ) -> Path:
    """Writes atomically a file that only its owner can read."""
    path = login_path(environ)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".login.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(asdict(login), file)
    temporary.replace(path)
    return path


def delete_login(environ: Mapping[str, str] = os.environ) -> bool:
    """Returns whether there was one."""
    with suppress(FileNotFoundError):
        login_path(environ).unlink()
        return True
    return False


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
