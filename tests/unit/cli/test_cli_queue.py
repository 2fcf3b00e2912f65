import json
from datetime import UTC, datetime, timedelta

import pytest

from unit.client.stand_in_server import answer


def at(minutes):
    return (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()


def accuracy(within, of):
    width = {"median_width": 1.2 if of else None}
    return {"within": within, "of": of, "early": 0, "late": of - within} | width


def forecast(likely, confidence=0.8):
    return {
        "earliest_at": at(likely - 20),
        "likely_at": at(likely + 0.5),
        "latest_at": at(likely + 30),
        "confidence": confidence,
        "runs": 10,
        "limits_at": at(likely + 60),
    }


def why(**fields):
    return {**WHY, "forecast": forecast(130), **fields}


def options():
    return [{**one, "forecast": forecast(40)} for one in OPTIONS]


WHY = {
    "job_id": 7,
    "state": "pending",
    "sentence": "needs 4 A100 on one node; 4 jobs of 2 projects are ahead",
    "blocked_by": "resources",
    "position": 5,
    "pending": 9,
    "ahead": 4,
    "ahead_projects": 2,
    "first_ahead": [{"id": number, "user": "bert", "project": "mri", "gpus": 1} for number in (1, 2, 3, 4)],
    "share_used": 1.2,
    "starts_by": None,
    "accuracy": accuracy(83, 100),
}
OPTIONS = [
    {"description": "at most 2h", "change": {"time_limit": 7200}, "starts_now": True},
    {"description": "2 A100", "change": {"gpus": 2}, "starts_now": True},
    {"description": "any GPU type", "change": {"gpu_type": None}, "starts_now": False},
]


def test_why_says_it_all_in_a_few_lines(helio, serve):
    serve(answer(why()))
    ran = helio("why", "7")
    assert ran.code == 0
    first, position, ahead, starts, latest, measured = ran.out.splitlines()
    assert first == "Job 7 pending: needs 4 A100 on one node; 4 jobs of 2 projects are ahead"
    assert position.split() == ["position", "5", "of", "9"]
    assert ahead.endswith("1 (bert in mri), 2 (bert in mri), 3 (bert in mri) and 1 more")
    assert "in about 2h10m, between " in starts
    assert "(80% likely)" in starts
    assert latest.endswith("if every job uses its full time limit")
    assert "83 of the last 100 starts were within the first forecast (0 earlier, 17 later)" in measured
    assert measured.endswith("range: 1.2 times the wait")


def test_what_if_lists_what_would_start_earlier(helio, serve):
    server = serve(answer(why(what_if=options())))
    ran = helio("why", "7", "--what-if")
    assert b"what_if=true" in server.requests[0]
    assert [line.split("  ")[-1].strip() for line in ran.out.splitlines()[-3:]] == [
        "now, by backfill",
        "now",
        "in about 40m",
    ]


def test_why_of_a_job_that_runs_is_one_line(helio, serve):
    serve(answer(why(state="running", sentence="runs on n1", position=None, forecast=None)))
    assert helio("why", "7").out == "Job 7 running: runs on n1\n"


def test_why_without_a_forecast_says_when_to_ask_again(helio, serve):
    serve(answer(why(forecast=None, accuracy=accuracy(0, 0))))
    assert "try again in a minute" in helio("why", "7").out


def test_a_young_cluster_says_that_its_forecasts_are_not_proven(helio, serve):
    serve(*(answer(why(accuracy=accuracy(within, of))) for within, of in ((0, 0), (1, 4), (4, 5))))
    for _ in range(2):
        assert helio("why", "7").out.splitlines()[-1].endswith("too few so far to know their accuracy")
    counts = "4 of the last 5 starts were within the first forecast (0 earlier, 1 later)"
    assert counts in helio("why", "7").out.splitlines()[-1]


def test_why_says_when_a_job_can_start_at_the_earliest_and_that_no_node_can_run_it(helio, serve):
    month = why(forecast=None, blocked_by="quota", not_before="2099-04-01T00:00:00Z")
    serve(answer(month), answer(why(forecast=None, blocked_by="nodes")))
    assert "starts    not before 2099-0" in helio("why", "7").out
    assert "starts    cannot start until a node is back" in helio("why", "7").out


def test_when_sends_what_was_asked_for_and_says_when(helio, serve):
    server = serve(
        answer(
            {
                "starts_now": False,
                "forecast": forecast(130),
                "what_if": options(),
                "accuracy": accuracy(0, 0),
            }
        )
    )
    ran = helio("when", "--gpus", "4", "--time", "8h", "--class", "interactive", "--label", "fast", "--exclusive")
    body = json.loads(server.requests[0].split(b"\r\n\r\n", 1)[1])
    assert body == {
        "gpus": 4,
        "time_limit": "8h",
        "priority_class": "interactive",
        "labels": ["fast"],
        "exclusive": True,
    }
    assert ran.out.startswith("If submitted now, the job would start in about 2h10m, between ")


def test_when_reports_an_immediate_start_or_that_the_start_is_too_far_away(helio, serve):
    moment = at(0)
    now = dict.fromkeys(("earliest_at", "likely_at", "latest_at", "limits_at"), moment) | {
        "confidence": 1.0,
        "runs": 10,
    }
    none = {"starts_now": False, "what_if": [], "accuracy": accuracy(0, 0)}
    serve(answer({**none, "starts_now": True, "forecast": now}), answer({"forecast": None, **none}))
    assert helio("when", "--gpus", "1").out == "If submitted now, the job would start immediately.\n"
    assert helio("when", "--gpus", "1").out == "No forecast: the start is too far away.\n"


def test_while_it_is_paused_a_job_starts_after_the_resumption(helio, serve):
    paused = {"forecast": None, "no_forecast_reason": "after `helio resume`"}
    estimate = {"starts_now": False, "what_if": [], "accuracy": accuracy(0, 0), **paused}
    serve(answer(estimate), answer(why(blocked_by="paused", **paused)))
    assert helio("when", "--gpus", "1").out == "If submitted now, the job would start after `helio resume`.\n"
    assert "starts    after `helio resume`\n" in helio("why", "7").out


def test_share_is_a_tree(helio, serve):
    def account(kind, name, entitled=0.5, children=()):
        return {
            "kind": kind,
            "name": name,
            "share": 2,
            "entitled": entitled,
            "usage_gpu_hours": 12.34,
            "reserved_gpu_hours": 4.2,
            "usage_ratio": 2.1,
            "credit_gpu_hours": 1.5,
            "children": list(children),
        }

    user = account("user", "anna")
    project = account("project", "mri", children=[user])
    serve(answer({"items": [account("department", "lab", children=[project])]}))
    lines = helio("share").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["lab", "mri", "anna"]
    assert lines[3].startswith("    anna")
    assert lines[3].split()[1:] == ["2", "50.0%", "8.1", "4.2", "2.10\N{MULTIPLICATION SIGN}", "1.5"]


def delivery(**changes):
    user = {
        "kind": "user",
        "name": "anna",
        "share": 1,
        "share_fraction": 0.25,
        "entitled_gpu_hours": 1000.0,
        "delivered_gpu_hours": 1100.0,
        "delivered_ratio": 1.1,
        "entitled_by_step": [100.0, 0.0, 400.0, 500.0],
        "delivered_by_step": [100.0, 0.0, 200.0, 800.0],
        "children": [],
    }
    nothing = {
        "share_fraction": None,
        "delivered_ratio": None,
        "entitled_by_step": [0.0],
        "delivered_by_step": [0.0],
    }
    departments = [
        user | {"kind": "department", "name": "lab", "children": [user]},
        user | {"kind": "department", "name": "idle"} | nothing,
    ]
    times = {"start_at": "2026-11-16T00:00:00Z", "end_at": "2026-11-19T04:00:00Z"}
    return {"items": departments, "next_cursor": None, "step_days": 1} | times | changes


def test_share_since_a_day_compares_delivered_with_entitled(helio, serve):
    server = serve(answer(delivery()), answer(delivery(step_days=7)), answer(delivery()))
    ran = helio("share", "--since", "2026-11-16")
    assert b"GET /api/v1/share/delivery?since=2026-11-16 " in server.requests[0]
    title, lab, anna, idle = ran.out.splitlines()
    assert title.endswith("PER DAY")
    assert lab.split() == ["lab", "25.0%", "1,000.0", "1,100.0", "110%", "▅", "▃▇"]
    assert anna.startswith("  anna")
    assert idle.split() == ["idle", "-", "-", "-", "-", "-"]
    assert "GPU-hours since 2026-11-16. PER DAY: delivered of entitled; ▅ is all" in ran.err
    assert "PER WEEK" in helio("share", "--since", "40d").out
    assert json.loads(helio("share", "--since", "14d", "--json").out) == delivery()


def test_share_since_an_age_begins_on_that_day(helio, serve):
    server = serve(answer(delivery()))
    before = datetime.now(UTC)
    helio("share", "--since", "14d")
    days = {(at - timedelta(days=14)).date().isoformat().encode() for at in (before, datetime.now(UTC))}
    assert any(b"since=" + day + b" " in server.requests[0] for day in days)


@pytest.mark.parametrize("text", ["14", "yesterday", "2026-13-01", "999999999d"])
def test_share_since_something_else_is_refused_before_the_server_is_asked(helio, serve, text):
    serve()
    ran = helio("share", "--since", text)
    assert ran.code == 2
    assert "--since" in ran.err


LINE = {
    "period": "2026-11",
    "name": "mri",
    "jobs": 12,
    "gpu_hours": 345.6,
    "cpu_hours": 1000.0,
    "fraction_of_total": 0.42,
    "wasted_gpu_hours": 7.25,
    "wasted_cpu_hours": 1.0,
    "mean_wait_seconds": 3725.0,
    "median_wait_seconds": None,
}


def test_report_is_a_table_json_or_csv(helio, serve):
    server = serve(
        answer({"items": [LINE]}),
        answer({"items": [LINE]}),
        b"HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nContent-Length: 7\r\n\r\na,b\r\n1\n",
        answer({"items": []}),
        answer({"items": []}),
    )
    row = helio("report", "--month", "2026-11", "--by", "department").out.splitlines()[1].split()
    assert row == ["mri", "12", "345.6", "42%", "1000.0", "7.2", "1h02m", "-"]
    assert b"month=2026-11&by=department" in server.requests[0]
    assert json.loads(helio("report", "--json").out) == [LINE]
    assert helio("report", "--csv").out == "a,b\n1\n"
    assert helio("report").out == "No jobs ran in that period.\n"
    helio("report", "--from", "2026-11-01", "--to", "2026-11-02", "--by", "gpu-type")
    assert b"from=2026-11-01&to=2026-11-02&by=gpu_type" in server.requests[4]


def test_a_list_of_jobs_shows_when_they_start(helio, serve):
    from unit.cli.test_cli_jobs import JOB

    serve(answer({"items": [{**JOB, "forecast": forecast(130)}], "next_cursor": None}))
    assert "in about 2h10m; waits for 2 A100" in helio("ps").out


def test_why_on_slurm_names_its_plan_and_how_accurate_it_was(helio, serve):
    planned = {**forecast(130, None), "runs": 0, "source": "Slurm's plan"}
    told = why(
        sentence="the requested resources are in use; 41 jobs are ahead",
        first_ahead=[],
        ahead=41,
        position=42,
        forecast=planned,
    )
    serve(answer(told))
    first, position, starts, measured = helio("why", "7").out.splitlines()
    assert first == "Job 7 pending: the requested resources are in use; 41 jobs are ahead"
    assert position.split() == ["position", "42", "of", "9"]
    assert "in about 2h10m, between " in starts
    assert starts.endswith("(Slurm's plan)")
    assert "83 of the last 100" in measured


def test_the_waste_report_names_what_is_idle(helio, serve):
    line = {"name": "mri", "jobs": 3, "granted_gpu_hours": 10.0, "used_gpu_hours": 6.0, "idle_gpu_hours": 2.5}
    server = serve(answer({"items": [{**line, "returned_gpu_hours": 1.0}], "next_cursor": None}))
    lines = helio("report", "waste", "--month", "2026-11").out.splitlines()
    assert lines[1].split() == ["mri", "3", "10.0", "6.0", "2.5", "25%", "1.0"]
    assert b"/report/waste?month=2026-11&by=project" in server.requests[0]


def test_the_idle_report_sums_what_would_have_come_back(helio, serve):
    steps = [{"step": "note", "at": "2026-01-02T03:30:00Z"}, {"step": "end", "at": "2026-01-02T05:00:00Z"}]
    line = {"job_id": 7, "attempt": 1, "user": "anna", "project": "mri", "gpus": 2, "steps": steps}
    serve(answer({"items": [{**line, "returned_gpu_hours": 12.0}] * 2, "next_cursor": None}))
    shown = helio("report", "idle")
    assert "24.0 GPU-hours would have come back" in shown.err
    assert "end" in shown.out.splitlines()[1]


@pytest.mark.parametrize("words", [["wasted"], ["waste", "--by", "gpu-type"], ["idle", "--csv"]])
def test_a_report_that_does_not_exist_is_refused(helio, words):
    assert helio("report", *words).code == 2
