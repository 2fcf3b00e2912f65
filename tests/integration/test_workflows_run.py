"""Workflows on a real server: files and values handed on, retries, the command line, and what is refused."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliostat.client import Client, Workflow
from heliostat.errors import HeliostatError, Invalid
from integration.running_server import RunningServer

SMALL = {"cpus": 1, "memory": 64}
PATIENCE = 120


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer('server.simulate_gpus = "2xA100"\nserver.node_name = "here"\n')
    yield server
    server.remove()


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[Client]:
    with Client(home=server.home) as client:
        yield client


def helio(server: RunningServer, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from heliostat.cli.main import main; sys.exit(main())", *words]
    env = {**os.environ, "HELIOSTAT_HOME": str(server.home), "TZ": "UTC"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, input=stdin, timeout=120)


def states(found: dict[str, Any]) -> dict[str, str]:
    return {job["key"]: job["state"] for job in found["jobs"]}


def test_files_and_values_are_handed_on_and_a_python_workflow_runs(client: Client) -> None:
    with Workflow("train", lr=0.1) as w:
        prep = w.job("prep", "echo 42 > $HELIOSTAT_OUTPUT_DIR/n; echo word='a  b' >> $HELIOSTAT_OUTPUT", **SMALL)
        show = 'echo acc=$1 >> "$HELIOSTAT_OUTPUT"; cat "$HELIOSTAT_WORKFLOW_DIR/prep/n"; '
        show += 'echo "$2,$HELIOSTAT_PARAM_LR"'
        words = ["sh", "-c", show, "x", "${{ matrix.acc }}", prep.output("word")]
        train = w.job("train", words, matrix={"acc": [3, 9, 5]}, **SMALL)
        best = "${{ argmax(jobs.train.outputs.acc) }}/${{ params.lr }}"
        evaluate = w.job("evaluate", ["echo", best], **SMALL)
        prep >> train >> evaluate
    made = w.submit(client, lr=0.5)
    found = made.wait(PATIENCE, check=True).data
    assert found["state"] == "completed", found
    by_key = {job["key"]: job for job in found["jobs"]}
    assert by_key["prep"]["outputs"] == {"word": "a  b"}
    assert by_key["train.2"]["outputs"] == {"acc": "9"}
    assert client.jobs.get(by_key["train.2"]["job_id"]).logs().splitlines() == ["42", "a  b,0.5"]
    assert client.jobs.get(by_key["evaluate"]["job_id"]).logs().strip() == "train.2/0.5"


def test_a_job_is_tried_again_a_while_later_and_those_after_it_learn_only_of_its_last_end(
    client: Client, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    line = f'echo x >> {tmp_path}/tries; echo n=$(wc -l < {tmp_path}/tries) >> "$HELIOSTAT_OUTPUT"; '
    with Workflow("retried") as w:
        first = w.job("first", line + f"[ $(wc -l < {tmp_path}/tries) -ge 3 ]", retries=3, retry_wait=0, **SMALL)
        first >> w.job("then", ["echo", first.output("n")], **SMALL)
    found = w.submit(client).wait(PATIENCE).data
    assert found["state"] == "completed", found
    assert (found["jobs"][0]["retries"], found["jobs"][0]["outputs"]) == (2, {"n": "3"})
    assert client.jobs.get(found["jobs"][1]["job_id"]).logs().strip() == "3"


def test_retries_wait_longer_each_time(client: Client) -> None:
    with Workflow("slow") as w:
        w.job("never", "exit 4", retries=2, retry_wait="10m", **SMALL)
    number = w.submit(client).id
    job_id = client.workflows.get(number).data["jobs"][0]["job_id"]
    client_events = lambda: [event["kind"] for event in client.events.list(after=0, job=job_id)]  # noqa: E731
    _wait(lambda: "failed" in client_events())
    job = client.jobs.get(job_id).data
    assert job["state"] == "pending"
    assert "is retried at" in (job["reason"] or "")
    assert client.workflows.cancel(number).state == "cancelled"


def test_the_command_line_submits_shows_retries_and_cancels(server: RunningServer, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    file = tmp_path / "flow.yaml"
    file.write_text(
        f"""
name: flow
params:
  n: 1
jobs:
  a: {{command: [test, -e, {tmp_path}/there], cpus: 1, memory: 64}}
  b:
    needs: a
    matrix: {{x: [1, 2]}}
    command: [echo, "${{{{ params.n }}}}-${{{{ matrix.x }}}}"]
    cpus: 1
    memory: 64
"""
    )
    planned = helio(server, "workflow", "submit", str(file), "--dry-run", "--json")
    assert [job["key"] for job in json.loads(planned.stdout)["jobs"]] == ["a", "b.1", "b.2"]
    done = helio(server, "workflow", "submit", str(file), "--param", "n=5", "--wait", "--json")
    assert done.returncode == 1, done.stderr
    number = str(json.loads(done.stdout)["id"])
    assert "skipped: a failed" in helio(server, "workflow", "show", number).stdout
    (tmp_path / "there").touch()
    assert "3 jobs submitted again" in helio(server, "workflow", "retry", number, "--from-failed").stdout
    with Client(home=server.home) as client:
        found = client.workflows.wait(int(number), PATIENCE).data
        assert found["state"] == "completed"
        assert client.jobs.get(found["jobs"][2]["job_id"]).logs().strip() == "5-2"
    again = helio(server, "workflow", "retry", number, "--json")
    assert json.loads(again.stdout)["id"] != int(number)
    assert json.loads(again.stdout)["params"] == {"n": 5}
    assert helio(server, "workflow", "cancel", str(json.loads(again.stdout)["id"])).returncode == 0
    assert "flow" in helio(server, "workflow", "list").stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &a [x]\nb: *a\n", "aliases (*name) are not supported"),
        ("name: x\njobs:\n  a: {command: [x]}\n  a: {command: [y]}\n", "duplicate key 'a'"),
        ("[1, 2", "neither YAML nor JSON"),
        ("- 1", "must be a mapping of fields"),
        ("!!python/object/apply:os.system ['id']", "neither YAML nor JSON"),
        ("name: x\njobs: {a: {command: [x], needs: b}, b: {command: [x], needs: a}}", "a → b → a"),
        ("name: x\njobs: {a: {command: [x], gups: 1}}", "did you mean gpus?"),
        ("{" * 3000, "nested too deeply"),
    ],
)
def test_hostile_and_wrong_files_are_refused_in_words(server: RunningServer, text: str, words: str) -> None:
    done = helio(server, "workflow", "submit", "-", stdin=text)
    assert done.returncode != 0
    assert words in " ".join(done.stderr.replace("│", " ").split()), done.stderr
    assert "Traceback" not in done.stderr


def test_the_api_refuses_what_is_wrong_with_the_field(client: Client) -> None:
    for document in (
        {},
        {"name": "x", "jobs": {"a": {"command": ["x"], "cpus": 0}}},
        {"name": "x", "jobs": {"a": 1}},
    ):
        with pytest.raises(Invalid) as caught:
            client.workflows.submit(document)
        assert caught.value.fields
        assert caught.value.hint or caught.value.fields
    with pytest.raises(HeliostatError, match="There is no workflow 999999"):
        client.workflows.get(999999)


def test_two_names_of_the_same_job_are_refused_where_they_are_written() -> None:
    w = Workflow("x")
    w.job("a", ["true"])
    with pytest.raises(Invalid, match="already has a job a"):
        w.job("a", ["true"])


def test_lists_of_jobs_can_be_put_in_order() -> None:
    w = Workflow("x")
    a, b, c, d = (w.job(name, ["true"]) for name in "abcd")
    a >> [b, c] >> d
    [a, b] >> d
    jobs = w.document()["jobs"]
    assert (jobs["b"]["needs"], jobs["c"]["needs"], jobs["d"]["needs"]) == (["a"], ["a"], ["b", "c", "a"])


def _wait(condition: Any) -> None:
    from support.waiting import wait_until

    wait_until(condition, "it has happened", PATIENCE)


def test_parameters_may_be_called_as_they_like(server: RunningServer, client: Client) -> None:
    """Also as what the client itself calls its arguments."""
    names = ("workflow", "idempotency_key", "self", "params", "values", "document")
    document = {
        "name": "named",
        "params": dict.fromkeys(names, "-"),
        "jobs": {"a": {"command": ["true"], **SMALL}},
    }
    assert client.workflows.preview(document, dict.fromkeys(names, "x"))["params"] == dict.fromkeys(names, "x")
    options = [word for name in names for word in ("--param", f"{name}={name}")]
    made = json.loads(
        helio(server, "workflow", "submit", "-", *options, "--json", stdin=json.dumps(document)).stdout
    )
    assert made["params"] == {name: name for name in names}
    assert client.workflows.submit(document).id != made["id"]


def test_a_workflow_is_waited_for(server: RunningServer, client: Client) -> None:
    with Workflow("wait") as w:
        w.job("go", "until [ -e go ]; do sleep 0.1; done", workdir=str(server.folder), **SMALL)
    number = str(w.submit(client).id)
    early = helio(server, "workflow", "wait", number, "--timeout", "1s")
    assert early.returncode == 7, early.stderr
    (server.folder / "go").touch()
    assert helio(server, "workflow", "wait", number).stdout == f"Workflow {number} (wait): completed.\n"
