import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.engines.slurm.command_output import ArrayElementId
from heliostat.engines.slurm.journal import EMPTY_RECEIPT, Receipt, parse_receipt, read_receipt


@pytest.mark.parametrize(
    ("text", "receipt"),
    [
        ("", EMPTY_RECEIPT),
        ("begun 7 0 n1\n", Receipt(7, "n1")),
        ("begun 7 0 \n", Receipt(7, "")),
        ("begun 7_3 0 n1\nended 7_3 0 143\n", Receipt(ArrayElementId.of(7, 3), "n1", 143)),
        ("begun 7 0 n1\nended 7 0 137 memory\n", Receipt(7, "n1", 137, out_of_memory=True)),
        ("begun 7 0 n1\nended 7 0 1\nbegun 7 1 n2\n", Receipt(7, "n2")),  # requeued, and it runs again
        ("begun 7 1 n1\nended 7 0 0\n", Receipt(7, "n1")),  # the end is of an earlier run
        ("ended 7 0 0\n", EMPTY_RECEIPT),
        ("begun 7 0 ../../etc\nbegun x 0 n1\n", EMPTY_RECEIPT),
    ],
)
def test_the_newest_run_counts(text: str, receipt: Receipt) -> None:
    assert parse_receipt(text) == receipt


@given(st.text())
def test_whatever_the_user_writes_is_a_receipt_or_none(text: str) -> None:
    assert isinstance(parse_receipt(text), Receipt)


def test_what_is_no_file_is_no_receipt(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert not any(read_receipt(str(tmp_path / name)).has_started for name in ("pipe", "link", "none", "."))


def test_a_time_that_is_none_hurts_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "receipt"
    path.write_text("begun 7 0 n1\n")
    real = os.fstat

    def far_off(descriptor: int) -> os.stat_result:
        return os.stat_result([*real(descriptor)[:8], 10**15, 10**15])

    monkeypatch.setattr(os, "fstat", far_off)
    assert read_receipt(str(path)) == EMPTY_RECEIPT
