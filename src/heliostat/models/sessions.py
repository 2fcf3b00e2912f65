"""Interactive sessions, and targets and grants of the proxy."""

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
        """`12`, `12-6006`, or the name of a service: as in a URL."""
        if self.service:
            return self.service
        return str(self.job_id) if self.port is None else f"{self.job_id}-{self.port}"

    @property
    def path_prefix(self) -> str:
        """The beginning of all its paths."""
        return f"/s/{self.name}/"


def parse_proxy_target(name: str) -> ProxyTarget | None:
    """None: not the name of a target. Each target has exactly one name."""
    if SERVICE_NAME_PATTERN.fullmatch(name):
        return ProxyTarget(0, service=name)
    match = _NUMBER.fullmatch(name)
    if match is None or int(match[2] or 1) > MAX_PORT:
        return None
    return ProxyTarget(int(match[1]), int(match[2]) if match[2] else None)


@dataclass(frozen=True, slots=True)
class ProxyGrant:
    """Permission of one browser, or one program, of one user to use one target for a limited time."""

    user: str
    target: ProxyTarget
    login_id: int | None  # the web login with which it ends; None: for a program
    created_at: datetime
    expires_at: datetime
    address: str = ""  # of the browser


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """Address of a port of a job. `socket_identity` stays equal as long as it is the same socket."""

    host: str
    port: int
    socket_identity: tuple[int, ...] = ()


SESSION_APPS = ("jupyter", "terminal", "vscode", "rstudio", "custom")
"""Applications of sessions: JupyterLab, its terminal, VS Code, RStudio, or a web server started by a command."""
JUPYTER_APPS = ("jupyter", "terminal")


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The part of a request for a session that is not part of a job request."""

    app: str = "jupyter"
    keep_idle: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """The data of a session that are not part of its job."""

    job_id: int
    app: str
    secret: str  # required by its server; added by the proxy and never sent to a browser
    environment: str | None = None  # digest of the environment that starts it
    keep_idle: bool = False  # it is not ended when idle
    active_at: datetime | None = None  # last activity
    idle_warned_at: datetime | None = None  # when its owner was warned that it will be ended as idle
    end_warned_at: datetime | None = None  # the end time about which its owner was warned
