import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from heliostat.engines.job_file_reader import JobFiles, LogChunk
from heliostat.engines.local import log_limit
from heliostat.engines.local.log_limit import LogLimit
from heliostat.engines.log_holes import DISK_BLOCK_BYTES
from heliostat.models import Attempt, Resources
from unit.scheduling.builders import a_job

LIMIT = 2**20
ATTEMPT = Attempt("1.1", a_job(1, Resources(1, 100), attempt=1), "a")
LINE = b"%063d\n"


class GrowingLog:
    """A log of job 1, open as the job has it."""

    def __init__(self, jobs: Path) -> None:
        self.files, self.limit = JobFiles(jobs), LogLimit(jobs, LIMIT)
        os.makedirs(jobs / "1")
        self.path = self.files.job_folder(1).log_path(1, "stdout")
        self._file = open(self.path, "ab", buffering=0)
        self._lines = 0

    def grow(self, size: int) -> None:
        last = self._lines + size // 64
        self._file.write(b"".join(LINE % number for number in range(self._lines, last)))
        self._lines = last

    def read(self, offset: int = 0, limit: int = 100_000) -> LogChunk:
        return self.files.read_log(1, 1, "stdout", offset, limit)

    def read_all(self) -> bytes:
        data, part = b"", self.read()
        while part.data:
            data += part.data
            part = self.read(part.offset + len(part.data))
        return data


@pytest.fixture
def log(tmp_path: Path) -> Iterator[GrowingLog]:
    log = GrowingLog(tmp_path / "jobs")
    yield log
    log._file.close()


def test_a_log_over_its_limit_keeps_its_beginning_and_its_end_and_says_what_was_removed(log: GrowingLog) -> None:
    log.grow(5 * LIMIT)
    assert log.limit.list_exceeding([ATTEMPT]) == [log.path]
    log.limit.apply([ATTEMPT])
    assert log.limit.list_exceeding([ATTEMPT]) == []
    assert os.stat(log.path).st_blocks * DISK_BLOCK_BYTES < LIMIT
    ((begin, end),) = log.read().holes
    text = log.read_all()
    assert b"\0" not in text
    assert text.startswith(LINE % 0)
    assert text.endswith(LINE % (5 * LIMIT // 64 - 1))
    assert (
        f"\n[Heliostat removed {end - begin:,} bytes of output here: see storage.log_max_size]\n".encode() in text
    )
    assert len(text) == 5 * LIMIT - (end - begin)


def test_offsets_of_readers_stay_valid_while_the_job_goes_on_writing(log: GrowingLog) -> None:
    log.grow(2 * LIMIT)
    followed = log.read(-1).offset + 1
    for _ in range(3):
        log.grow(LIMIT)
        log.limit.apply([ATTEMPT])
    log.grow(64)
    assert log.read(followed - 64).holes
    assert log.read(5 * LIMIT).data == LINE % (5 * LIMIT // 64)
    in_hole = log.read(followed)
    assert in_hole.offset == in_hole.holes[0][1]
    assert in_hole.data.startswith(b"\n[Heliostat removed ")
    assert log.read_all().count(b"[Heliostat") == 1


def test_holes_made_by_the_job_are_skipped_and_do_not_count(log: GrowingLog) -> None:
    os.truncate(log.path, 2**40)
    assert log.limit.list_exceeding([ATTEMPT]) == []
    assert (log.read().data, log.read().offset) == (b"", 2**40)
    log.grow(64)
    assert log.read_all() == LINE % 0


def test_a_file_system_without_holes_is_logged_once(log: GrowingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(log_limit, "_punch_hole", refuse)
    log.grow(2 * LIMIT)
    with capture_logs() as logged:
        log.limit.apply([ATTEMPT])
        log.limit.apply([ATTEMPT])
    assert [entry["event"] for entry in logged] == ["log_limit_not_applied"]
    assert len(log.read_all()) == 2 * LIMIT
