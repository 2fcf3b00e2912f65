"""Holes of logs that change while they are read."""

import os
from pathlib import Path

from heliostat.engines.log_holes import OutputReader, find_holes


def test_a_log_that_its_job_truncates_meanwhile_ends_there(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "1.stdout", os.O_RDWR | os.O_CREAT)
    try:
        for at in (2**20, 2**22):
            os.pwrite(descriptor, b"x" * 2**16, at)
        os.ftruncate(descriptor, size := 2**23)
        holes, reader = find_holes(descriptor), OutputReader(descriptor)
        assert next(holes) == (0, 2**20)
        os.ftruncate(descriptor, 0)
        assert list(holes) == [(2**20, size)]
        assert reader.read(2**16) == b""
    finally:
        os.close(descriptor)
