from dataclasses import replace
from pathlib import Path

import pytest

from heliostat.errors import NotFound
from heliostat.models import JobState
from heliostat.services.logs.reader import LogRange, read_log
from support.fake_engines import FilesEngine
from unit.services.site import Site, a_job


def test_deleted_output_is_an_error_and_missing_output_is_empty(site: Site, tmp_path: Path) -> None:
    site.context.engine = FilesEngine(tmp_path)  # type: ignore[misc, assignment]
    storage = replace(site.context.settings.storage, keep_job_folders_days=30)
    site.context.settings = replace(site.context.settings, storage=storage)  # type: ignore[misc]
    running = replace(a_job(1, site.clock.at), state=JobState.RUNNING, attempt=1)
    over = replace(running, state=JobState.COMPLETED, ended_at=site.clock.at)
    assert read_log(site.context, running, LogRange()).data == b""
    site.clock.turn(days=29)
    assert read_log(site.context, over, LogRange()).data == b""
    site.clock.turn(days=2)
    assert read_log(site.context, running, LogRange()).data == b""
    with pytest.raises(NotFound, match="kept for 30 days"):
        read_log(site.context, over, LogRange())
