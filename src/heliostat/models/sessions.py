"""What the proxy leads to, and who may go there."""

import re
from dataclasses import dataclass
from datetime import datetime

from heliostat.models.services import SERVICE_NAME_PATTERN

_NUMBER = re.compile(r"([1-9][0-9]{0,14})(?:-([1-9][0-9]{0,4}))?")
MAX_PORT = 65535


@dataclass(frozen=True, slots=True)
class ProxyTarget:
    """The server of a session, a port of any running job, or a service."""

    job_id: int  # 0: a service
    port: int | None = None  # None: the session's own server
    service: str = ""  # its name

    @property
    def name(self) -> str:
        """`12`, `12-6006`, or that of a service: as it stands in an address."""
        if self.service:
            return self.service
        return str(self.job_id) if self.port is None else f"{self.job_id}-{self.port}"

    @property
    def path_prefix(self) -> str:
        """What all its paths begin with."""
        return f"/s/{self.name}/"


def parse_proxy_target(name: str) -> ProxyTarget | None:
    """None: it is no such name. Each target has one name only."""
    if SERVICE_NAME_PATTERN.fullmatch(name):
        return ProxyTarget(0, service=name)
    found = _NUMBER.fullmatch(name)
    if found is None or int(found[2] or 1) > MAX_PORT:
        return None
    return ProxyTarget(int(found[1]), int(found[2]) if found[2] else None)


@dataclass(frozen=True, slots=True)
class ProxyGrant:
    """That one browser, or one program, of one person may use one target for a while."""

    user: str
    target: ProxyTarget
    login_id: int | None  # of the web, with which it ends; None: it was made for a program
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """Where a port of a job can be reached, and a proof of whose it is: equal as long as it is the same socket."""

    host: str
    port: int
    socket_identity: tuple[int, ...] = ()


SESSION_APPS = ("jupyter", "terminal", "vscode", "rstudio", "custom")
"""What a session may run: JupyterLab, its terminal, VS Code, RStudio, or any web server by its command."""
JUPYTER_APPS = ("jupyter", "terminal")


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """What is asked of a session besides being a job."""

    app: str = "jupyter"
    keep_idle: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """What a job of kind session has besides being a job."""

    job_id: int
    app: str
    secret: str  # that its server wants to see; the proxy adds it, no browser learns it
    environment: str | None = None  # the digest of what it is started with
    keep_idle: bool = False  # it may stay however long nobody uses it
    active_at: datetime | None = None  # when it was last seen in use
    idle_warned_at: datetime | None = None  # that it will be ended because nobody uses it
    end_warned_at: datetime | None = None  # the end of its time that its owner was told of
