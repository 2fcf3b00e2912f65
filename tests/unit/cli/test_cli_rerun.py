"""`helio rerun`, `helio diff` and `helio show --record`, against a stand-in server."""

from collections.abc import Callable
from typing import Any

import pytest

from heliostat.cli.rerun import parse_changes
from unit.client.stand_in_server import answer

RECORD = {
    "job_id": 12,
    "rerun_of": 7,
    "reruns": [13],
    "upload": {"id": "f" * 64, "is_there": True, "files": 3, "size_bytes": 10},
    "code": {
        "folder": "/home/anna/x",
        "commit": "c" * 40,
        "branch": "main",
        "remote": None,
        "diff": "+a\x1b[2J\n",
        "is_diff_cut": False,
        "untracked": ["notes"],
        "untracked_count": 1,
    },
    "machines": [
        {
            "attempt": 1,
            "nodes": ["n1"],
            "gpus": ["A100"],
            "driver": "550.1",
            "image_digest": None,
            "environment": None,
            "heliostat": "0.1.0",
        }
    ],
    "request": {"command": ["true"], "env": ["SEED"]},
}


def test_changes_are_read_as_json_where_they_are_json() -> None:
    changes = parse_changes(
        ["gpus=2", "name=null", "gpu_type=A100", 'command=["a", "b"]', "time=4h", "exclusive=true"]
    )
    assert changes == {
        "gpus": 2,
        "name": None,
        "gpu_type": "A100",
        "command": ["a", "b"],
        "time": "4h",
        "exclusive": True,
    }


def test_values_of_variables_are_always_text() -> None:
    assert parse_changes(["env.SEED=7", "env.X=a=b", "env.OLD=null"]) == {
        "env": {"SEED": "7", "X": "a=b", "OLD": None}
    }


@pytest.mark.parametrize("text", ["gpus", "=2", ""])
def test_what_is_no_change_is_refused(helio: Callable[..., Any], text: str) -> None:
    ran = helio("rerun", "12", "--set", text)
    assert ran.code == 2
    assert "FIELD=VALUE" in ran.err


def test_the_record_is_told_in_words(helio: Callable[..., Any], serve: Callable[..., Any]) -> None:
    serve(answer(RECORD))
    ran = helio("show", "--record", "12")
    assert ran.code == 0
    assert "c" * 40 in ran.out
    assert "helio rerun 12" in ran.out
    assert "\x1b" not in ran.out


def test_differences_are_told_by_section(helio: Callable[..., Any], serve: Callable[..., Any]) -> None:
    differences = [
        {"section": "request", "field": "gpus", "first": "1", "second": "2"},
        {"section": "code", "field": "uncommitted", "first": "", "second": "a\nb\nc"},
    ]
    serve(answer({"first": 12, "second": 13, "differences": differences, "same": ["machine", "result"]}))
    ran = helio("diff", "12", "13")
    assert ran.code == 0
    assert "Request:" in ran.out
    assert "a (+2 lines)" in ran.out
    assert "Identical: node and software, result." in ran.out
