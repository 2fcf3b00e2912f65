import json
import os
from datetime import UTC, datetime

import pytest

from unit.client.stand_in_server import answer, stream

JOB = {
    "id": 7,
    "kind": "batch",
    "name": "train",
    "state": "pending",
    "user": "anna",
    "project": "mri",
    "cpus": 4,
    "memory_mib": 16384,
    "gpus": 2,
    "gpu_type": "A100",
    "gpu_memory_mib": None,
    "tasks": 1,
    "layout": "pack",
    "exclusive": False,
    "labels": [],
    "time_limit_seconds": 14400,
    "overtime": False,
    "priority": 0,
    "priority_class": "normal",
    "preemptible": False,
    "preemptions": 0,
    "max_retries": 0,
    "retries": 0,
    "array_id": None,
    "array_index": None,
    "array_limit": None,
    "attempt": 0,
    "node": None,
    "devices": [],
    "places": [],
    "submitted_at": "2026-01-02T03:04:05Z",
    "started_at": None,
    "checkpointed_at": None,
    "ended_at": None,
    "exit_code": None,
    "reason": "waits for 2 A100",
    "stop_requested": None,
}
NOT_FOUND = answer({"error": {"code": "not_found", "message": "There is no job 9.", "hint": "helio ps"}}, 404)


def ended(state: str, code: int | None = None) -> bytes:
    over = {**JOB, "state": state, "exit_code": code, "ended_at": "2026-01-02T03:05:05Z", "reason": None}
    return answer({"finished": [over], "unfinished": []})


def sent(request: bytes) -> dict:
    return json.loads(request.split(b"\r\n\r\n", 1)[1])


def test_run_sends_what_was_asked_for(helio, serve, monkeypatch):
    monkeypatch.setenv("WANDB_KEY", "secret")
    server = serve(answer(JOB, 201))
    ran = helio(
        *("run --gpus 2 --gpu-type A100 --cpus 4 --memory 16G --time 4h --name train --project mri").split(),
        *("--env A=b=c --env WANDB_KEY --priority -5 --hold --max-retries 2 --grace 1m").split(),
        *("--", "python", "train.py", "--lr", "0.1"),
    )
    assert ran.code == 0
    assert "Job 7 pending" in ran.out
    assert sent(server.requests[0]) == {
        "command": ["python", "train.py", "--lr", "0.1"],
        "gpus": 2,
        "gpu_type": "A100",
        "cpus": 4,
        "memory": "16G",
        "time_limit": "4h",
        "name": "train",
        "project": "mri",
        "env": {"A": "b=c", "WANDB_KEY": "secret"},
        "workdir": os.getcwd(),
        "priority": -5,
        "held": True,
        "max_retries": 2,
        "grace_seconds": 60.0,
    }


def test_run_sends_where_and_how_it_may_run(helio, serve):
    server = serve(answer(JOB, 201))
    ran = helio(
        *("run --gpus 0.5 --gpu-memory 40G --tasks 4 --layout spread --exclusive --label fast").split(),
        *("--label disk=ssd --class scavenger --preemptible --preempt-signal USR1 --overtime true").split(),
    )
    assert ran.code == 0
    assert sent(server.requests[0]) == {
        "command": ["true"],
        "gpus": 0.5,
        "gpu_memory": "40G",
        "tasks": 4,
        "layout": "spread",
        "exclusive": True,
        "labels": ["fast", "disk=ssd"],
        "priority_class": "scavenger",
        "preemptible": True,
        "preempt_signal": "USR1",
        "overtime": True,
        "workdir": os.getcwd(),
    }


def test_a_list_counts_all_tasks_and_names_the_first_node(helio, serve):
    places = [{"node": "n1", "devices": []}, {"node": "n2", "devices": []}]
    gang = {**JOB, "tasks": 2, "node": "n1", "places": places}
    serve(answer({"items": [gang], "next_cursor": None}))
    row = helio("ps").out.splitlines()[1]
    assert row.split()[4:7] == ["4xA100", "8", "32G"]
    assert "n1 +1" in row


def test_show_tells_of_tasks_parts_classes_and_checkpoints(helio, serve):
    data = {
        **JOB,
        "gpus": 0.5,
        "gpu_memory_mib": 40960,
        "tasks": 3,
        "layout": "spread",
        "labels": ["fast"],
        "overtime": True,
        "priority_class": "scavenger",
        "preemptible": True,
        "preemptions": 2,
        "checkpointed_at": "2026-01-02T03:04:05Z",
    }
    serve(answer(data))
    out = helio("show", "7").out
    for words in (
        "3 tasks, each 0.5 A100 GPU with 40G each, 4 CPUs, 16G memory",
        "one node per task, fast",
        "4h00m, overtime",
        "scavenger, preemptible",
        "2 times",
        "work saved",
    ):
        assert words in out


def test_a_job_says_that_it_has_saved_its_work(helio, serve, monkeypatch):
    monkeypatch.setenv("HELIOSTAT_JOB_ID", "7")
    server = serve(answer({**JOB, "state": "running", "checkpointed_at": "2026-01-02T03:04:05Z"}))
    ran = helio("checkpointed")
    assert (ran.code, server.requests[0].split()[:2]) == (0, [b"POST", b"/api/v1/jobs/7/checkpoint"])
    assert "is recorded as saved" in ran.out


def test_outside_of_a_job_one_must_say_which_has_saved_its_work(helio, serve, monkeypatch):
    monkeypatch.delenv("HELIOSTAT_JOB_ID", raising=False)
    serve()
    ran = helio("checkpointed")
    assert ran.code == 2
    assert "hint: " in ran.err


def test_options_after_the_command_belong_to_it_without_a_double_dash(helio, serve):
    server = serve(answer(JOB, 201))
    assert helio("run", "python", "x.py", "--gpus", "9", "--wait").code == 0
    assert sent(server.requests[0])["command"] == ["python", "x.py", "--gpus", "9", "--wait"]


def test_one_quoted_line_is_for_the_shell(helio, serve):
    server = serve(answer(JOB, 201))
    helio("run", "echo a | cat")
    assert sent(server.requests[0])["command"] == "echo a | cat"


def test_a_script_is_sent_as_text_with_its_arguments(helio, serve, tmp_path):
    server = serve(answer(JOB, 201))
    (tmp_path / "job.sh").write_text("#!/bin/sh\necho $1\n")
    helio("run", "--script", str(tmp_path / "job.sh"), "--workdir", "/data/../scratch", "one word")
    body = sent(server.requests[0])
    assert (body["script"], body["command"], body["workdir"]) == ("#!/bin/sh\necho $1\n", ["one word"], "/scratch")


def test_json_of_run_is_the_job(helio, serve):
    serve(answer(JOB, 201))
    assert json.loads(helio("run", "--json", "true").out) == JOB


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [
        ("completed", 0, 0),
        ("failed", 3, 3),
        ("failed", None, 1),
        ("cancelled", None, 130),
        ("timed_out", 143, 124),
        ("lost", None, 125),
    ],
)
def test_waiting_ends_with_the_code_of_the_job(helio, serve, state, code, expected):
    serve(answer(JOB, 201), ended(state, code))
    ran = helio("run", "--wait", "true")
    assert ran.code == expected
    assert ran.out == ""
    assert f"Job 7 {state.replace('_', ' ')}" in ran.err


def test_following_keeps_the_streams_apart(helio, serve):
    text = (
        'event: chunk\ndata: {"stream": "stdout", "offset": 0, "text": "out\\n"}\n\n'
        'event: chunk\ndata: {"stream": "stderr", "offset": 0, "text": "err\\n"}\n\n'
        'event: end\ndata: {"state": "failed", "exit_code": 3}\n\n'
    )
    serve(answer(JOB, 201, Connection="close"), stream(text), ended("failed", 3))
    ran = helio("run", "--follow", "true")
    assert (ran.code, ran.out) == (3, "out\n")
    assert "err\n" in ran.err


def test_following_a_waiting_job_shows_why_it_waits_and_repeats_only_changes(helio, serve):
    def wait(reason, position, likely_at="2026-01-01T00:00:00Z", state="pending"):
        forecast = {"likely_at": likely_at, "earliest_at": likely_at, "latest_at": likely_at}
        body = {"state": state, "reason": reason, "position": position, "pending": 3, "forecast": forecast}
        return f"event: wait\ndata: {json.dumps(body)}\n\n"

    text = (
        wait("needs 4 GPUs", 2)
        + wait("needs 4 GPUs", 2, "2026-01-01T00:05:00Z")
        + wait("needs 4 GPUs", 1)
        + wait(None, None, state="starting")
        + 'event: chunk\ndata: {"stream": "stdout", "offset": 0, "text": "out\\n"}\n\n'
        + 'event: end\ndata: {"state": "completed", "exit_code": 0}\n\n'
    )
    serve(answer(JOB, 201, Connection="close"), stream(text), ended("completed", 0))
    ran = helio("run", "--follow", "true")
    assert (ran.code, ran.out) == (0, "out\n")
    assert ran.err.splitlines()[1:-1] == [
        "Job 7 pending, position 2 of 3, starts very soon: needs 4 GPUs",
        "Job 7 pending, position 1 of 3, starts very soon: needs 4 GPUs",
    ]


def test_an_interrupted_wait_leaves_the_job_and_says_so(helio, serve, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    serve(answer(JOB, 201))
    monkeypatch.setattr("heliostat.client.jobs.Jobs.wait", interrupt)
    ran = helio("run", "--wait", "true")
    assert ran.code == 130
    assert "helio cancel 7" in ran.err


def test_an_array_says_how_many(helio, serve):
    serve(answer({"array_id": 3, "count": 2, "job_ids": [7, 8]}, 201))
    assert helio("run", "--array", "0-1", "true").out.startswith("Array 3 of 2 jobs submitted")


def test_a_list_is_plain_when_nobody_looks(helio, serve):
    server = serve(answer({"items": [JOB], "next_cursor": None}))
    ran = helio("ps")
    title, row = ran.out.splitlines()
    assert title.split() == ["ID", "NAME", "USER", "STATE", "GPUS", "CPUS", "MEM", "TIME", "NODE", "REASON"]
    assert row.split()[:7] == ["7", "train", "anna", "pending", "2xA100", "4", "16G"]
    assert "\x1b" not in ran.out
    assert b"newest_replicas=true" in server.requests[0]
    assert b"unfinished=true" in server.requests[0]


def test_filters_of_ps(helio, serve):
    server = serve(answer({"items": [], "next_cursor": None}))
    ran = helio("ps", "--mine", "--state", "failed,lost", "--array", "3", "--json")
    assert json.loads(ran.out) == []
    for part in (b"user=me", b"state=failed&state=lost", b"array_id=3", b"limit=50"):
        assert part in server.requests[0]
    assert b"unfinished" not in server.requests[0]


def test_an_empty_list_says_what_to_type_next(helio, serve):
    serve(answer({"items": [], "next_cursor": None}))
    assert "helio run" in helio("ps").out


def test_names_cannot_steer_the_terminal(helio, serve):
    serve(answer({"items": [{**JOB, "name": "a\x1b[31m\nb"}], "next_cursor": None}))
    ran = helio("ps")
    assert "\x1b" not in ran.out
    assert len(ran.out.splitlines()) == 2


def test_a_private_job_has_no_name(helio, serve):
    serve(answer({"items": [{**JOB, "name": None, "reason": None}], "next_cursor": None}))
    assert "(private)" in helio("ps").out


def test_show_tells_all(helio, serve):
    detail = {**JOB, "spec": {"command": ["sh", "-c", "a b"], "script": None, "workdir": "/x", "env": {"K": "v"}}}
    serve(answer(detail))
    out = helio("show", "7").out
    assert "sh -c 'a b'" in out
    assert "2 A100 GPUs, 4 CPUs, 16G memory" in out
    assert "4h00m" in out


def test_what_is_not_there_is_exit_code_4(helio, serve):
    serve(NOT_FOUND)
    ran = helio("show", "9")
    assert (ran.code, ran.err) == (4, "helio: There is no job 9.\nhint: helio ps\n")


def test_one_missing_job_does_not_keep_the_others_from_being_cancelled(helio, serve):
    serve(NOT_FOUND, answer({**JOB, "state": "cancelled"}))
    ran = helio("cancel", "9", "7")
    assert (ran.code, ran.out) == (4, "Job 7 cancelled\n")


def test_a_cancel_can_be_forced(helio, serve):
    jobs = answer({"items": [JOB], "next_cursor": None})
    server = serve(answer({**JOB, "state": "running", "stop_requested": "kill"}), jobs, answer({"count": 1}))
    assert helio("cancel", "--force", "7").out == "Job 7 running, stopping (kill)\n"
    assert helio("cancel", "--force", "array:3").out == "1 job cancelled.\n"
    assert b"/jobs/7/cancel?force=true " in server.requests[0]
    assert b'"force":true' in server.requests[2]


def test_cancelling_an_array(helio, serve):
    server = serve(job_list(9, 8), answer({"count": 2}))
    assert helio("cancel", "array:3").out == "2 jobs cancelled.\n"
    assert b"array_id=3" in server.requests[0]
    assert sent(server.requests[1]) == {"job_ids": [8, 9]}


def job_list(*ids: int) -> bytes:
    return answer({"items": [{**JOB, "id": job_id} for job_id in ids], "next_cursor": None})


def test_cancelling_the_jobs_of_a_user(helio, serve):
    server = serve(job_list(9, 8), answer({"count": 2}))
    assert helio("cancel", "--user", "ann").out == "2 jobs cancelled.\n"
    assert b"user=ann" in server.requests[0]
    assert b"unfinished=true" in server.requests[0]
    assert sent(server.requests[1]) == {"job_ids": [8, 9]}


@pytest.mark.parametrize("option", [(), ("--cancel-jobs",)])
def test_deactivating_an_account_lists_what_it_keeps_going(helio, serve, option):
    account = {"name": "ann", "role": "user", "unix_user": None, "active": False, "memberships": []}
    account |= {"has_password": False, "created_at": "2026-03-01T12:00:00Z", "quota": {}}
    work = {"running_jobs": [8], "waiting_jobs": [9, 10], "services": ["llm"], "schedules": ["nightly"]}
    server = serve(answer(account), answer(work), answer({"count": 3}))
    ran = helio("user", "set", "ann", "--inactive", *option)
    assert ran.code == 0
    assert "services are not replaced when they end: llm." in ran.err
    assert "schedules submit no more jobs: nightly." in ran.err
    if option:
        assert sent(server.requests[2]) == {"job_ids": [8, 9, 10]}
        assert "Cancelled: 2 jobs (9, 10)." in ran.err
    else:
        assert "Still running: 1 job (8)." in ran.err
        assert "Cancel them: helio cancel --user ann" in ran.err


def test_cancel_jobs_needs_inactive(helio, serve):
    serve()
    ran = helio("user", "set", "ann", "--cancel-jobs")
    assert ran.code == 2
    assert "needs --inactive" in ran.err


def test_cancelling_a_job_that_has_ended_says_so(helio, serve):
    serve(answer({**JOB, "state": "cancelled", "had_ended": True}))
    assert helio("cancel", "7").out == "Job 7 had already ended: cancelled\n"


@pytest.mark.parametrize("command", ["wait", "hold", "release", "cancel", "logs"])
def test_commands_for_several_jobs_want_to_know_which(helio, serve, command):
    serve()
    ran = helio(command)
    assert ran.code == 2
    assert "array:5, sweep:3, --mine or --name" in ran.err


@pytest.mark.parametrize("command", ["wait", "hold", "release", "cancel", "logs"])
def test_commands_for_several_jobs_refuse_what_is_not_a_job(helio, serve, command):
    serve()
    ran = helio(command, "folder:3")
    assert ran.code == 2
    assert "'folder:3' is not a job" in ran.err


@pytest.mark.parametrize(("command", "state"), [("hold", "pending"), ("release", "held")])
def test_a_whole_sweep_is_held_and_released(helio, serve, command, state):
    server = serve(answer({"id": 3, "array_id": 5}), job_list(8, 7), answer(JOB), answer({**JOB, "id": 8}))
    assert helio(command, "sweep:3").out == "Job 7 pending\nJob 8 pending\n"
    assert b"/sweeps/3 " in server.requests[0]
    assert b"array_id=5" in server.requests[1]
    assert f"state={state}".encode() in server.requests[1]


def test_waiting_for_your_jobs_with_a_name(helio, serve):
    server = serve(job_list(7), ended("completed", 0))
    assert helio("wait", "--mine", "--name", "train").code == 0
    assert all(part in server.requests[0] for part in (b"user=me", b"name=train", b"unfinished=true"))
    assert sent(server.requests[1])["job_ids"] == [7]


def test_an_empty_selection_changes_nothing(helio, serve):
    serve(job_list())
    assert helio("hold", "--mine").out == "No matching jobs.\n"


def test_an_array_that_does_not_exist_is_not_found(helio, serve):
    serve(job_list(), job_list())
    assert helio("wait", "array:9").code == 4


def test_the_outputs_of_several_jobs_are_told_apart(helio, serve):
    chunk = {"stream": "stdout", "offset": 0, "text": "a\nb", "next_offset": 3}
    follow = f'event: chunk\ndata: {json.dumps(chunk)}\n\nevent: end\ndata: {{"state": "completed"}}\n\n'
    serve(stream(follow), stream(follow))
    lines = helio("logs", "-f", "7", "8").out.splitlines()
    assert sorted(lines) == ["7: a", "7: b", "8: a", "8: b"]


def test_wait_ends_with_the_first_failure(helio, serve):
    finished = [{**JOB, "state": "completed"}, {**JOB, "id": 8, "state": "failed", "exit_code": 5}]
    serve(answer({"finished": finished, "unfinished": []}))
    assert helio("wait", "7", "8").code == 5


def test_waiting_in_vain_says_so(helio, serve):
    serve(answer({"finished": [], "unfinished": [7]}))
    ran = helio("wait", "7", "--timeout", "0s")
    assert ran.code == 7
    assert "not ended" in ran.err


FOREIGN = {
    "id": "slurm:12",
    "user": "ann",
    "name": None,
    "state": "running",
    "reason": None,
    "cpus": 4,
    "memory_mib": 2048,
    "gpus": 2,
    "tasks": 1,
    "nodes": ["n1", "n2"],
    "devices": ["n1:0"],
    "submitted_at": "2026-01-01T10:00:00Z",
    "started_at": "2026-01-01T10:05:00Z",
    "time_limit_seconds": None,
    "cancel_command": "scancel 12",
}


def test_jobs_that_went_to_slurm_directly_are_listed_with_where_to_act(helio, serve):
    server = serve(answer({"items": [FOREIGN]}), answer({"items": [FOREIGN]}), answer({"items": []}))
    ran = helio("ps", "--foreign", "--node", "n1")
    words = ran.out.splitlines()[1].split()
    assert (words[0], words[2], words[3], words[-1]) == ("slurm:12", "ann", "running", "n1,n2")
    assert "scancel 12" in ran.err
    assert json.loads(helio("ps", "--foreign", "--json").out) == [FOREIGN]
    assert helio("ps", "--foreign").out == "No jobs were submitted to Slurm directly.\n"
    assert server.requests[0].split()[1] == b"/api/v1/foreign-jobs?node=n1&limit=50"


def test_keep_takes_an_interval_or_a_time(helio, serve):
    kept = {"kept_until": "2026-03-01T15:00:00Z", "answers_left": 2}
    server = serve(*[answer({**JOB, "idle_gpus": kept})] * 3)
    assert "2 answers left" in helio("keep", "7", "--for", "4h").out
    for given in ("15:00", "2099-12-05 10:00"):
        assert helio("keep", "7", "--until", given).code == 0
    interval, *times = [sent(request)["until"] for request in server.requests]
    assert interval == "+4h"
    assert all(datetime.fromisoformat(until) > datetime.now(UTC) for until in times)


def test_a_refused_time_is_reported_with_the_option_that_was_given(helio, serve):
    problem = {"code": "invalid", "message": "until: is too late.", "hint": "", "fields": {"until": "is too late"}}
    serve(*[answer({"error": problem}, 422)] * 2)
    assert "--for: is too late" in helio("keep", "7", "--for", "25h").err
    assert "--until: is too late" in helio("keep", "7", "--until", "2099-12-05 10:00").err


@pytest.mark.parametrize(
    "words", [[], ["--for", "4h", "--until", "15:00"], ["--until", "late"], ["--until", "25:00"]]
)
def test_keep_without_a_valid_time_is_refused(helio, words):
    assert helio("keep", "7", *words).code == 2
