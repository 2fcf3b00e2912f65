"""Stand-ins for engines of which a test needs one part only."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from heliostat.engines.contract import Capabilities, Endpoint
from heliostat.engines.job_file_reader import JobFiles
from heliostat.engines.local.endpoints import LocalEndpoint
from heliostat.engines.local.port_ownership import PortOwnershipChecks
from heliostat.models import Attempt
from heliostat.models.sessions import ListeningSocket


def _not_here(*_: object, **__: object) -> Any:
    raise NotImplementedError


class FilesEngine(JobFiles):
    """Has the files of jobs below `home/jobs`, and nothing else."""

    name = "files"
    exec = endpoint = attach_endpoints = detach_endpoints = extend_time_limit = _not_here

    def __init__(self, home: Path) -> None:
        super().__init__(home / "jobs")
        self.stream_order: list[tuple[str, int]] = []

    def read_log_order(self, *_: object) -> list[tuple[str, int]]:
        return self.stream_order


class PortsEngine(FilesEngine):
    """Jobs of this machine listen where `find` says."""

    def __init__(self, find: Callable[[], ListeningSocket]) -> None:
        super().__init__(Path("/nowhere"))
        self._find = find
        self.session_port: Any = lambda attempt: 4000
        self.capabilities = Capabilities(runs_on_server_host=True)

    def endpoint(self, attempt: Attempt, port: int) -> Endpoint:  # type: ignore[override]
        return LocalEndpoint(PortOwnershipChecks(lambda *_: self._find()), attempt, port)


class RemoteEngine(FilesEngine):
    """Jobs of another machine answer this."""

    def __init__(self, answer: bytes = b"") -> None:
        super().__init__(Path("/nowhere"))
        self.capabilities = Capabilities()
        self.endpoint: Any = lambda *_: SimpleNamespace(exchange=lambda *_, **__: answer)  # type: ignore[assignment]
