"""What the commands about shares, quotas, nodes and reservations send and print."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from unit.client.stand_in_server import StandInServer, answer

QUOTA = {"running_gpus": 8, "queued_gpus": None, "gpu_hours_per_month": 500}
DEPARTMENT = {"name": "imaging", "share": 3, "quota": QUOTA}
PROJECT = {
    "name": "tumours",
    "department": "imaging",
    "share": 2,
    "data_class": 1,
    "closes_at": None,
    "quota": QUOTA,
    "members": [],
    "note": "No node accepts data of class 1.",
}
NODE = {
    "name": "n1",
    "state": "up",
    "reason": None,
    "cpus": 8,
    "memory_mib": 1024,
    "cpus_used": 0,
    "memory_used_mib": 0,
    "gpus_used": 0.5,
    "jobs": [7, 8],
    "labels": {"disk": "ssd", "fast": ""},
    "data_class": 3,
    "min_data_class": 2,
    "splits_devices": True,
    "notes": [],
    "devices": [],
    "note": None,
}
COURSE = {
    "name": "course",
    "project": None,
    "nodes": ["n1", "n2"],
    "gpus_per_node": None,
    "starts_at": "2026-12-03T09:00:00Z",
    "ends_at": "2026-12-03T17:00:00Z",
    "weeks": 12,
    "reason": "new disk",
    "next": {"starts_at": "2026-12-10T09:00:00Z", "ends_at": "2026-12-10T17:00:00Z"},
}


@pytest.fixture(autouse=True)
def _far_from_greenwich(monkeypatch: pytest.MonkeyPatch) -> Any:
    import time

    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def sent(server: StandInServer) -> tuple[str, Any]:
    head, _, body = server.requests[-1].partition(b"\r\n\r\n")
    method, path, _ = head.split(b"\r\n")[0].decode().split()
    return f"{method} {path}", json.loads(body) if body else None


def test_a_department_is_set_with_only_what_is_named(helio, serve):
    server = serve(answer(DEPARTMENT))
    ran = helio("department", "set", "imaging", "--share", "3", "--running-gpus", "8", "--queued-gpus", "none")
    assert sent(server) == (
        "PATCH /api/v1/departments/imaging",
        {"share": 3, "quota": {"running_gpus": 8, "queued_gpus": None}},
    )
    assert "8 running, 500 h/month" in ran.out


def test_a_project_is_set_and_what_that_means_is_said_beside_the_result(helio, serve):
    server = serve(answer(PROJECT))
    ran = helio("project", "set", "tumours", "--data-class", "1", "--gpu-hours-per-month", "500")
    assert sent(server)[1] == {"data_class": 1, "quota": {"gpu_hours_per_month": 500}}
    assert "data class  1" in ran.out
    assert ran.err.strip() == PROJECT["note"]


def test_a_project_is_moved_closed_and_opened_again(helio, serve):
    server = serve(*(answer({**PROJECT, "closes_at": at}) for at in ("2020-01-31T17:00:00Z", None, None)))
    words = ("project", "set", "tumours", "--department", "surgery", "--closes")
    assert "closed since  2020-01-31" in helio(*words, "2020-01-31 18:00+01:00").out
    assert sent(server)[1]["department"] == "surgery"
    assert datetime.fromisoformat(sent(server)[1]["closes_at"]) == datetime(2020, 1, 31, 17, tzinfo=UTC)
    assert "closed" not in helio(*words, "none").out
    assert sent(server)[1]["closes_at"] is None
    assert helio(*words, "now").code == 0
    assert helio(*words, "soon").code == 2


def test_a_user_gets_a_quota(helio, serve):
    user = {"name": "bert", "role": "user", "unix_user": None, "active": True, "has_password": False}
    server = serve(answer({**user, "created_at": "2026-01-01T00:00:00Z", "memberships": [], "quota": QUOTA}))
    ran = helio("user", "set", "bert", "--running-gpus", "8")
    assert sent(server) == ("PATCH /api/v1/users/bert", {"quota": {"running_gpus": 8}})
    assert "8 running" in ran.out


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "", "9" * 30, "\u0663"])
def test_a_limit_that_is_no_number_is_refused_before_anything_is_sent(helio, text):
    ran = helio("project", "set", "tumours", f"--running-gpus={text}")
    assert ran.code == 2
    assert "or none" in ran.err


@pytest.mark.parametrize("words", [("department", "set"), ("project", "set"), ("user", "set"), ("node", "set")])
def test_to_change_nothing_is_a_mistake_that_names_the_options(helio, words):
    ran = helio(*words, "x")
    assert ran.code == 2
    assert "Nothing to change. Use --" in ran.err


def test_lists_show_shares_classes_and_quotas(helio, serve):
    serve(answer({"items": [DEPARTMENT]}), answer({"items": [PROJECT]}))
    assert helio("department", "list").out.splitlines()[1].split()[:2] == ["imaging", "3"]
    assert helio("project", "list").out.splitlines()[1].split()[:5] == ["tumours", "imaging", "2", "1", "0"]


def test_a_node_is_set_with_labels_to_add_and_to_take_away(helio, serve):
    server = serve(answer(NODE))
    words = ("--label", "disk=ssd", "--label", "fast", "--no-label", "old", "--data-class", "0", "--no-split-gpus")
    ran = helio("node", "set", "n1", *words)
    labels = {"disk": "ssd", "fast": "", "old": None}
    assert sent(server) == (
        "PATCH /api/v1/nodes/n1",
        {"labels": labels, "data_class": 0, "splits_devices": False},
    )
    assert "disk=ssd fast" in ran.out


def test_nodes_and_node_show_tell_the_settings(helio, serve):
    serve(answer({"items": [NODE]}), answer(NODE))
    assert "disk=ssd fast; only data of class 2 to 3; GPUs may be shared" in helio("nodes").out
    shown = helio("node", "show", "n1").out
    assert "data classes   2 to 3" in shown
    assert "7, 8" in shown


def test_times_of_a_reservation_are_local_unless_they_say_otherwise(helio, serve):
    jobs = [{"id": 7, "user": "ann", "nodes": ["n1"], "ends_at": None}]
    server = serve(answer({**COURSE, "running_jobs": jobs}, 201))
    times = ("--from", "2026-12-03 09:00", "--to", "2026-12-03T17:00:00Z")
    ran = helio("reservation", "create", "course", "--nodes", "n1, n2", *times, "--weeks", "12")
    assert ran.code == 0, ran.err
    body = sent(server)[1]
    assert body["starts_at"] == "2026-12-03T09:00:00+05:30"
    assert body["ends_at"] == "2026-12-03T22:30:00+05:30"
    assert body["nodes"] == ["n1", "n2"]
    assert "maintenance (no jobs)" in ran.out
    assert "2026-12-03 14:30 to 2026-12-03 22:30, weekly for 12 weeks" in ran.out
    assert "job 7 of ann on n1, no time limit" in ran.err


@pytest.mark.parametrize("text", ["tomorrow", "2026-13-01", "0001-01-01", ""])
def test_a_time_that_is_none_is_refused_with_how_to_write_one(helio, text):
    ran = helio("reservation", "create", "x", "--nodes", "n1", "--from", text, "--to", "2026-12-03")
    assert ran.code == 2
    assert "Write '2026-12-03 09:00'" in ran.err


def test_reservations_are_listed_with_their_next_time(helio, serve):
    over = {**COURSE, "name": "old", "next": None}
    server = serve(answer({"items": [COURSE, over]}), answer({"items": []}))
    lines = helio("reservation", "list", "--all").out.splitlines()
    assert sent(server)[0] == "GET /api/v1/reservations?past=true"
    assert "2026-12-10 14:30-22:30" in lines[1]
    assert "ended" in lines[2]
    assert "No reservations." in helio("reservation", "list").out


def test_reservations_and_jobs_can_be_read_on_80_columns():
    from heliostat.cli.job_format import JOB_COLUMNS
    from heliostat.cli.reservations import _COLUMNS, _row
    from unit.cli.test_cli_output import shown

    long = {"name": "deadline-of-the-vision-group", "project": "segmentation", "nodes": ["gpu-01", "gpu-02"] * 9}
    rows = [_row(COURSE), _row(COURSE | long)]
    lines = shown(_COLUMNS, rows, 80)
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["NAME", "FOR", "NODES", "GPUS", "WHEN"]
    assert all("2026-12-10 14:30-22:30" in line for line in lines[1:])
    assert "new disk" in shown(_COLUMNS, rows, 200)[1]
    cells = ["1234", "train.py", "ann", "running", "4xA100", "16", "64G", "2h07m", "a100-01", ""]
    head, line = shown(JOB_COLUMNS, [cells], 80)
    assert head.endswith("NODE, REASON") or "NODE" in head.split()
    assert "a100-01" in line


def test_a_reason_of_several_lines_is_one_in_a_table():
    from heliostat.cli.job_format import _why

    job = {"stop_requested": None, "reason": "its environment cannot be built:\nno such package", "exit_code": 1}
    assert _why(job) == "its environment cannot be built: · no such package"


def test_a_reservation_is_deleted(helio, serve):
    server = serve(b"HTTP/1.1 204 X\r\nContent-Length: 0\r\n\r\n")
    assert json.loads(helio("reservation", "delete", "a/b", "--json").out) == {"name": "a/b", "deleted": True}
    assert sent(server)[0] == "DELETE /api/v1/reservations/a%2Fb"


def test_a_node_says_for_whom_it_is_set_aside_and_which_job_is_alone_there(helio, serve):
    kept = {
        "name": "disks",
        "project": None,
        "gpus": None,
        "reason": "new disk",
        "ends_at": "2099-12-03T17:00:00Z",
    }
    now = kept | {"starts_at": "2020-01-01T00:00:00Z"}
    soon = kept | {"name": "course", "project": "ml", "gpus": 2, "starts_at": "2099-12-03T09:00:00Z"}
    node = NODE | {"exclusive_job": 7, "jobs": [7], "reserved": [now, soon]}
    serve(answer({"items": [node]}), answer(node))
    listed = helio("nodes").out
    assert "exclusive to job 7; maintenance until 2099-12-03 22:30; 2 GPUs for project ml from " in listed
    shown = helio("node", "show", "n1").out
    assert "jobs           7 (exclusive)" in shown
    assert "reserved       maintenance until 2099-12-03 22:30 (disks: new disk)" in shown


def test_a_mig_slice_is_listed_with_its_number_and_what_it_counts_as(helio, serve):
    device = {
        "index": 1,
        "number": "1:0",
        "type": "A100-1g.10gb",
        "memory_mib": 9728,
        "memory_used_mib": 12,
        "utilisation": None,
        "temperature": 31,
        "problem": None,
        "used_outside": None,
        "job_ids": [],
        "card_fraction": 0.1429,
    }
    serve(
        answer(
            {"items": [{**NODE, "gpus_used": 1, "devices": [device, {**device, "number": "1:1", "job_ids": [7]}]}]}
        )
    )
    lines = helio("nodes").out.splitlines()
    assert "1/2 A100-1g.10gb" in lines[1]
    assert lines[-1].split() == "n1 1:1 A100-1g.10gb 7 - 12M/9.5G 31°C counts as 0.14 GPU".split()
