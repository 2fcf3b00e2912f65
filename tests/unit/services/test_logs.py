from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from heliostat.errors import NotFound
from heliostat.models import JobState
from heliostat.services.jobs.logs import LogRange, read_log
from unit.services.site import Site, a_job


@dataclass
class Folders:
    """An engine that keeps logs and nothing else."""

    folder: Path
    name: str = "stand-in"

    def log_path(self, job_id: int, attempt: int, stream: str) -> Path:
        return self.folder / str(job_id) / f"{attempt}.{stream}"

    def log_order(self, job_id: int, attempt: int) -> list[tuple[str, int]]:
        return []


def test_output_that_was_swept_away_is_told_as_that_and_output_that_is_not_there_yet_is_empty(
    site: Site, tmp_path: Path
) -> None:
    site.context.engine = Folders(tmp_path / "jobs")  # type: ignore[misc, assignment]
    site.context.settings = replace(
        site.context.settings, storage=replace(site.context.settings.storage, keep_job_folders_days=30)
    )  # type: ignore[misc]
    running = replace(a_job(1, site.clock.at), state=JobState.RUNNING, attempt=1)
    over = replace(running, state=JobState.COMPLETED, ended_at=site.clock.at)
    assert read_log(site.context, running, LogRange()).data == b""
    site.clock.turn(days=29)
    assert read_log(site.context, over, LogRange()).data == b""
    site.clock.turn(days=2)
    assert read_log(site.context, running, LogRange()).data == b""
    with pytest.raises(NotFound, match="kept for 30 days"):
        read_log(site.context, over, LogRange())
