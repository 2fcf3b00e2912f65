"""Stand-ins for engines of which a test needs one part only."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from heliostat.engines.contract import Capabilities, Endpoint
from heliostat.engines.job_files import JobFiles
from heliostat.engines.local.endpoints import LocalEndpoint
from heliostat.engines.local.port_ownership import OwnershipChecks
from heliostat.models import Attempt
from heliostat.models.sessions import Listening


def _not_here(*_: object, **__: object) -> Any:
    raise NotImplementedError


class FilesEngine(JobFiles):
    """Has the files of jobs below `home/jobs`, and nothing else."""

    name = "files"
    exec = endpoint = attach_endpoints = detach_endpoints = extend = _not_here

    def __init__(self, home: Path) -> None:
        super().__init__(home / "jobs")
        self.order: list[tuple[str, int]] = []

    def log_order(self, *_: object) -> list[tuple[str, int]]:
        return self.order


class PortsEngine(FilesEngine):
    """Jobs of this machine listen where `find` says."""

    def __init__(self, find: Callable[[], Listening]) -> None:
        super().__init__(Path("/nowhere"))
        self._find = find
        self.session_port: Any = lambda attempt: 4000
        self.capabilities = Capabilities(runs_here=True)

    def endpoint(self, attempt: Attempt, port: int) -> Endpoint:  # type: ignore[override]
        return LocalEndpoint(OwnershipChecks(lambda *_: self._find()), attempt, port)


class ElsewhereEngine(FilesEngine):
    """Jobs of another machine answer this."""

    def __init__(self, answer: bytes = b"") -> None:
        super().__init__(Path("/nowhere"))
        self.capabilities = Capabilities()
        self.endpoint: Any = lambda *_: SimpleNamespace(exchange=lambda *_, **__: answer)  # type: ignore[assignment]
