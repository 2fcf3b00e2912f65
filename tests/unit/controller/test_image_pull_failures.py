"""Why a container was not begun, as the node has left it."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from heliostat.controller.failure_details import add_image_fetch_failure
from heliostat.models import AttemptEnded, EndCause
from support.fake_engines import FilesEngine
from unit.services.site import a_job

NOW = datetime(2026, 11, 16, tzinfo=UTC)
FAILED = AttemptEnded("7.1", NOW, EndCause.EXITED, 125)
JOB = replace(a_job(7, NOW), attempt=1)


@pytest.fixture
def noted(tmp_path: Path) -> Path:
    file = tmp_path / "jobs/7/checkpoints/.image"
    file.parent.mkdir(parents=True)
    return file


@pytest.mark.parametrize("code", [125, 126])
def test_the_reason_is_that_its_image_did_not_come(tmp_path: Path, noted: Path, code: int) -> None:
    noted.write_text("failed lab/torch:2\nError: \x1b[31mmanifest unknown\n")
    settled = add_image_fetch_failure(FilesEngine(tmp_path), JOB, replace(FAILED, exit_code=code))
    assert (settled.detail or "").startswith(
        "lab/torch:2 cannot be fetched: the image does not exist in the registry"
    )


@pytest.mark.parametrize("seen", [replace(FAILED, exit_code=1), replace(FAILED, cause=EndCause.TIMED_OUT)])
def test_one_that_was_begun_has_reasons_of_its_own(tmp_path: Path, noted: Path, seen: AttemptEnded) -> None:
    noted.write_text("failed lab/torch:2\nError: manifest unknown\n")
    assert add_image_fetch_failure(FilesEngine(tmp_path), JOB, seen) is seen


def test_an_image_that_came_is_no_reason(tmp_path: Path, noted: Path) -> None:
    noted.write_text(f'"digest":"sha256:{"0" * 64}","names":["lab/torch:2"\n')
    assert add_image_fetch_failure(FilesEngine(tmp_path), JOB, FAILED) is FAILED
