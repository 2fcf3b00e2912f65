"""A workflow in which everything happens, and what must have become of it: wherever and in whatever it runs."""

from collections.abc import Mapping
from typing import Any

from integration.running_server import DEADLINE_SECONDS, RunningServer, wait_for

OVER = ("completed", "failed", "cancelled")


def diamond(fields: Mapping[str, Any], tries: str) -> dict[str, Any]:
    """`top` hands on a value and a file to three variants, one of which needs two tries; `bottom` gathers them."""
    train = (
        'read lines < "$HELIOSTAT_WORKFLOW_DIR/top/file"; echo acc=$1$lines >> "$HELIOSTAT_OUTPUT"; '
        'echo "$2" > "$HELIOSTAT_OUTPUT_DIR/word"; '
        f'[ "$1" != 9 ] || {{ echo x >> {tries}; [ "$(wc -l < {tries})" -ge 2 ]; }}'
    )
    gather = 'echo "$1 $(cat "$HELIOSTAT_WORKFLOW_DIR/train.1/word") $HELIOSTAT_PARAM_LR"'
    first = 'echo 7 > "$HELIOSTAT_OUTPUT_DIR/file"; echo "word=a  b" >> "$HELIOSTAT_OUTPUT"'
    made: dict[str, Any] = {
        "top": {"command": first},
        "train": {
            "needs": "top",
            "matrix": {"n": [3, 9, 5]},
            "command": ["/bin/sh", "-c", train, "x", "${{ matrix.n }}", "${{ jobs.top.outputs.word }}"],
            "retries": 2,
            "retry_wait": 0,
        },
        "fails": {"needs": "top", "command": "exit 3"},
        "sorry": {"needs": ["train", "fails"], "if": "failure()", "command": "echo told"},
        "never": {"needs": "fails", "command": "echo wrong"},
        "bottom": {
            "needs": "train",
            "command": ["/bin/sh", "-c", gather, "x", "${{ argmax(jobs.train.outputs.acc) }}"],
        },
    }
    jobs = {name: {**fields, **job} for name, job in made.items()}
    return {"name": "diamond", "params": {"lr": 0.5}, "jobs": jobs}


def assert_it_went_as_it_should(server: RunningServer, found: dict[str, Any], uid: int | None) -> None:
    jobs = {job["key"]: job for job in found["jobs"]}
    assert {key: job["state"] for key, job in jobs.items()} == {
        "top": "completed",
        "train.1": "completed",
        "train.2": "completed",
        "train.3": "completed",
        "fails": "failed",
        "sorry": "completed",
        "never": "skipped",
        "bottom": "completed",
    }, found
    assert jobs["top"]["outputs"] == {"word": "a  b"}
    assert [jobs[f"train.{n}"]["outputs"]["acc"] for n in (1, 2, 3)] == ["37", "97", "57"]
    assert [jobs[f"train.{n}"]["retries"] for n in (1, 2, 3)] == [0, 1, 0]
    assert server.output(jobs["bottom"]["job_id"], uid).strip() == "train.2 a  b 0.5"
    assert server.output(jobs["sorry"]["job_id"], uid).strip() == "told"
    assert jobs["never"]["reason"] == "skipped: fails failed"


def submit(server: RunningServer, document: dict[str, Any], uid: int | None) -> int:
    answer = server.ask("POST", "/workflows", {"workflow": document}, uid=uid)
    assert answer.status == 201, answer.body
    number: int = answer.json["id"]
    return number


def show(server: RunningServer, number: int, uid: int | None) -> dict[str, Any]:
    found: dict[str, Any] = server.ask("GET", f"/workflows/{number}", uid=uid).json
    return found


def finished(server: RunningServer, number: int, uid: int | None) -> dict[str, Any]:
    def is_over() -> bool:
        return show(server, number, uid)["state"] in OVER

    wait_for(is_over, "the workflow is over", lambda: show(server, number, uid), 2 * DEADLINE_SECONDS)
    return show(server, number, uid)
