import json
import os
import time

import pytest

from unit.client.stand_in_server import answer

TWO = answer({"count": 2, "job_ids": [7, 8], "array_ids": []}, 201)


def sent(request: bytes) -> list[dict]:
    return json.loads(request.split(b"\r\n\r\n", 1)[1])["jobs"]


@pytest.mark.parametrize(
    "text",
    [
        '{"command": "true"}',
        '[{"command": "true"}]',
        '{"jobs": [{"command": "true"}]}',
        "command: 'true'",
        "- command: 'true'",
        "jobs:\n- command: 'true'",
        "{command: 'true'}",
    ],
)
def test_one_job_a_list_or_jobs(helio, serve, tmp_path, text):
    server = serve(TWO)
    (tmp_path / "jobs").write_text(text)
    assert helio("submit", str(tmp_path / "jobs")).out == "2 jobs submitted: 7-8. Watch them: helio logs -f 7 8\n"
    assert sent(server.requests[0]) == [{"command": "true", "workdir": os.getcwd()}]


def test_numbers_and_truths_of_yaml_become_text_where_text_is_meant(helio, serve, tmp_path):
    server = serve(TWO)
    (tmp_path / "j.yaml").write_text("command: [echo, 3]\nenv: {A: 1, B: yes}\narray: 5\ngpus: 2\nworkdir: sub")
    helio("submit", str(tmp_path / "j.yaml"))
    assert sent(server.requests[0]) == [
        {
            "command": ["echo", "3"],
            "env": {"A": "1", "B": "true"},
            "array": "5",
            "gpus": 2,
            "workdir": os.path.join(os.getcwd(), "sub"),
        }
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a job must be a mapping of fields"),
        ("[]", "it contains no job"),
        ("a: [", "neither YAML nor JSON"),
        ("just words", "a job must be a mapping of fields"),
        ('{"jobs": [], "name": "x"}', "no field besides `jobs`"),
        ("!!python/object/apply:os.system [id]", "neither YAML nor JSON"),
        ("[" * 5000, "it is nested too deeply"),
        ("[" * 60 + "]" * 60, "it is nested too deeply"),
        ("- " * 5000, "it is nested too deeply"),
        ("command: a\nenv: &a {B: *a}", "aliases (*name) are not supported"),
        ("command: a\ncpus: 1\ncommand: b", "line 3: duplicate key 'command'"),
    ],
)
def test_a_file_that_says_no_jobs_is_refused_before_it_is_sent(helio, tmp_path, text, why):
    (tmp_path / "j").write_text(text)
    ran = helio("submit", str(tmp_path / "j"))
    assert ran.code == 2
    assert why in ran.err


def test_a_broken_json_file_is_called_json(helio, tmp_path):
    (tmp_path / "j.json").write_text('{"command": }')
    assert "it is not JSON" in helio("submit", str(tmp_path / "j.json")).err


def test_the_servers_word_on_a_field_is_passed_on(helio, serve, tmp_path):
    serve(answer({"error": {"code": "invalid", "message": "gpuz: unknown.", "hint": "See the fields."}}, 422))
    (tmp_path / "j.json").write_text('{"command": "true", "gpuz": 1}')
    ran = helio("submit", str(tmp_path / "j.json"))
    assert (ran.code, ran.err) == (2, "helio: gpuz: unknown.\nhint: See the fields.\n")


@pytest.mark.parametrize(
    ("words", "message", "says"),
    [
        (["run", "--time", "x", "--", "true"], "time_limit: 'x' is not a duration.", "--time: 'x' is not"),
        (["run", "--class", "vip", "--", "true"], "priority_class: is unknown.", "--class: is unknown"),
        (["when", "--gpu-memory", "1"], "gpu_memory: at least 16.", "--gpu-memory: at least 16"),
        (
            ["run", "--hold", "--", "true"],
            "memory: see gpu_memory_mib.",
            "--memory: see --gpu-memory.",
        ),
        (["run", "--label", "A B", "--", "true"], "labels.0: is not a label.", "--label: is not a label"),
        (["run", "--", "true"], "My memory is full.", "My memory is full"),
        (
            ["schedule", "create", "n", "--", "true"],
            "job.memory: is none.\ntime_zone: is none.",
            "--zone: is none.",
        ),
        (["schedule", "create", "n", "--", "true"], "job.labels.0: is none.\nx: no.", "helio: --label: is none."),
        (["run", "--sweep", "lr=1", "--", "echo {lr}"], "job.command: {lr} is no.", "helio: command: {lr} is no."),
        (["node", "set", "n1", "--data-class", "9"], "data_class: must be at most 3.", "--data-class: must be"),
    ],
)
def test_what_is_refused_is_said_in_the_words_that_were_typed(helio, serve, words, message, says):
    hint = "The fields of a job are described in docs/researchers.md#every-field."
    hint = "The fields are described in docs/api.md." if words[0] == "node" else hint
    serve(answer({"error": {"code": "invalid", "message": message, "hint": hint, "fields": {}}}, 422))
    ran = helio(*words)
    assert ran.code == 2
    assert says in ran.err
    command = " ".join(words[:2]) if words[0] in ("node", "schedule") else words[0]
    assert f"hint: See helio {command} --help." in ran.err


def test_a_sweep_whose_command_uses_no_value_is_submitted_with_a_warning(helio, serve):
    created = {"id": 3, "name": "sweep", "count": 2, "array_id": 5}
    serve(answer(created, 201), answer(created, 201))
    ran = helio("run", "--sweep", "lr=1,2", "--", "echo", "hi")
    assert "does not contain {lr}. Each run has its value only in $HELIOSTAT_PARAM_LR.\n" in ran.err
    assert "does not contain" not in helio("run", "--sweep", "lr=1,2", "--", "echo $HELIOSTAT_PARAM_LR").err


def test_every_problem_of_a_file_has_its_line(helio, serve, tmp_path):
    (tmp_path / "jobs.yaml").write_text("command: 'true'")
    message = "job a: gpus: must be a number.\njob b: command or script is required."
    hint = "The fields of a job are described in docs/researchers.md#every-field."
    serve(answer({"error": {"code": "invalid", "message": message, "hint": hint, "fields": {}}}, 422))
    assert helio("submit", str(tmp_path / "jobs.yaml")).err == (
        "helio: job a: gpus: must be a number.\n"
        "       job b: command or script is required.\n"
        "hint: See helio submit --help.\n"
    )


def test_a_file_speaks_the_words_of_the_api(helio, serve, tmp_path):
    (tmp_path / "job.yaml").write_text("command: 'true'\ntime_limit: x\n")
    message = "time_limit: 'x' is not a duration."
    serve(answer({"error": {"code": "invalid", "message": message, "hint": None, "fields": {}}}, 422))
    assert message in helio("submit", str(tmp_path / "job.yaml")).err


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (["--image", "python:3.11"], {"image": "python:3.11"}),
        (["--isolate"], {"runtime": "bubblewrap"}),
        (["--runtime", "podman", "--image", "a"], {"runtime": "podman", "image": "a"}),
        (["--isolate", "--network", "none"], {"runtime": "bubblewrap", "network": "none"}),
        (["--mount", "data:/in:ro"], {"mounts": ["HERE/data:/in:ro"]}),
        (["--mount", "data"], {"mounts": ["HERE/data:HERE/data"]}),
        (["--mount", "data:ro", "--mount", "/x:/y"], {"mounts": ["HERE/data:HERE/data:ro", "/x:/y"]}),
    ],
)
def test_what_is_said_of_a_container_is_sent(helio, serve, words, fields):
    server = serve(answer({"id": 7, "state": "pending"}, 201))
    helio("run", *words, "--", "true")
    body = json.loads(server.requests[0].split(b"\r\n\r\n", 1)[1])
    expected = json.loads(json.dumps(fields).replace("HERE", os.getcwd()))
    assert {name: body.get(name) for name in ("image", "runtime", "mounts", "network") if name in body} == expected


@pytest.mark.parametrize("words", [["--image", "a"], ["--runtime", "podman"]])
def test_isolate_is_without_an_image_and_has_its_own_runtime(helio, words):
    ran = helio("run", "--isolate", *words, "--", "true")
    assert ran.code == 2
    assert "bubblewrap" in ran.err


def test_whom_a_job_waits_for_may_be_said_in_several_ways(helio, serve):
    server = serve(answer({"id": 7, "state": "pending"}, 201))
    helio("run", "--after", "12,13", "--after-ok", "array:5", "--after-any", "9", "--begin", "+2h", "--", "true")
    body = json.loads(server.requests[0].split(b"\r\n\r\n", 1)[1])
    assert body["after"] == ["12", "13", "array:5"]
    assert (body["after_any"], body["begin"]) == (["9"], "+2h")


def test_a_time_of_yaml_is_that_of_this_machine(helio, serve, tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "Etc/GMT-2")
    time.tzset()
    server = serve(TWO)
    (tmp_path / "j.yaml").write_text("command: 'true'\nbegin: 2026-12-01 08:00:00\nafter: [12, prep]")
    helio("submit", str(tmp_path / "j.yaml"))
    monkeypatch.undo()
    time.tzset()
    (body,) = sent(server.requests[0])
    assert (body["begin"], body["after"]) == ("2026-12-01T08:00:00+02:00", [12, "prep"])
