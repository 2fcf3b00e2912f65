"""Sweeps on a real server: an array with its table, and metrics of jobs that have no token."""

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.client import Client, JobHandle
from heliostat.client.report_metric import report_metric
from heliostat.errors import Conflict, HeliostatError, Invalid
from integration.running_server import RunningServer
from integration.web.surfing import Surfer

SMALL = {"cpus": 1, "memory": 64}
REPORT = (
    "import os, sys; sys.path[:0] = {path!r}; from heliostat.client.report_metric import report_metric as report; "
    "report('acc', float(sys.argv[1]), 1); report('acc', float(sys.argv[1]) * 2, 2); "
    "print(sys.argv[1], os.environ['HELIOSTAT_PARAM_LR'], 'HELIOSTAT_TOKEN' in os.environ)"
)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer('server.simulate_gpus = "2xA100"\nserver.node_name = "here"\n')
    yield server
    server.remove()


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[Client]:
    with Client(home=server.home) as client:
        yield client


def helio(server: RunningServer, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from heliostat.cli.main import main; sys.exit(main())", *words]
    env = {**os.environ, "HELIOSTAT_HOME": str(server.home), "TZ": "UTC", **environ}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=120)


def test_runs_get_their_values_and_what_they_report_is_a_table(server: RunningServer, client: Client) -> None:
    words = [sys.executable, "-c", REPORT.format(path=sys.path), "{lr}"]
    made = client.sweeps.submit({"command": words, **SMALL}, name="lr", grid={"lr": [0.1, 0.3, 0.2]}, at_once=2)
    found = made.wait(120, check=True).refresh(sort="-acc").data
    assert [run["values"]["lr"] for run in found["runs"]] == [0.3, 0.2, 0.1]
    best = found["runs"][0]["metrics"]["acc"]
    assert (best["value"], best["least"], best["most"], best["step"], best["count"]) == (0.6, 0.3, 0.6, 2, 2)
    assert client.jobs.get(found["runs"][0]["job_id"]).logs().split() == ["0.3", "0.3", "False"]
    rows = list(csv.DictReader(io.StringIO(made.csv("acc"))))
    assert [(row["lr"], row["acc"], row["state"]) for row in rows] == [
        ("0.1", "0.2", "completed"),
        ("0.2", "0.4", "completed"),
        ("0.3", "0.6", "completed"),
    ]
    shown = helio(server, "sweep", "show", str(made.id), "--sort", "-acc", "--csv").stdout
    assert shown.splitlines()[0] == "index,job,state,lr,acc"
    with pytest.raises(Invalid, match="there is no column 'accuracy'"):
        client.sweeps.get(made, sort="accuracy")


def test_a_metric_of_a_plain_job_is_shown_and_compared(server: RunningServer, client: Client) -> None:
    def job(value: str) -> JobHandle:
        command = [sys.executable, "-c", REPORT.format(path=sys.path), value]
        return client.submit(command, env={"HELIOSTAT_PARAM_LR": ""}, **SMALL)

    one, other = client.wait([job("0.1"), job("0.3")], timeout=120, check=True)
    assert client.jobs.get(one).data["metrics"] == {
        "acc": {"value": 0.2, "step": 2, "least": 0.1, "most": 0.2, "count": 2}
    }
    assert "acc 0.2 (step 2)" in helio(server, "show", str(one.id)).stdout
    differences = client.jobs.diff(one, other)["differences"]
    assert {"section": "result", "field": "metric acc", "first": "0.2", "second": "0.6"} in differences
    assert "<td>acc</td>" in Surfer(server).by_link().get(f"/jobs/{one.id}").text


def test_helio_is_on_the_path_of_a_job(client: Client) -> None:
    script = "#!/bin/sh\nhelio report-metric loss -1e-3 --step 4 && helio show $HELIOSTAT_JOB_ID"
    job = client.submit(script=script, **SMALL).wait(120, check=True)
    assert client.jobs.get(job).data["metrics"]["loss"]["value"] == -0.001
    assert "running" in job.logs()


def test_the_python_client_is_on_the_path_of_a_job(client: Client) -> None:
    code = "import heliostat, os; print(heliostat.Client().jobs.get(int(os.environ['HELIOSTAT_JOB_ID'])).state)"
    code += "; print(heliostat.__file__)"
    base = getattr(sys, "_base_executable", sys.executable)  # without the packages of the tests
    job = client.submit([base, "-S", "-c", code], **SMALL).wait(120, check=True)
    assert job.logs().strip().endswith("bin/client.zip/heliostat/__init__.py")
    installed = client.submit([sys.executable, "-c", "import heliostat.cli.main as m; print(m.__file__)"], **SMALL)
    assert "client.zip" not in installed.wait(120, check=True).logs()


def test_a_sweep_from_the_command_line_is_an_array(server: RunningServer, client: Client, tmp_path: Path) -> None:
    options = ("--cpus", "1", "--memory", "64M", "--json", "--sweep", "lr=0.1,0.01", "--sweep", "seed=1..3")
    done = helio(server, "run", *options, "--", "echo", "{lr}", "s{seed}", "{{x}}")
    made = json.loads(done.stdout)
    assert (made["count"], made["parameters"]) == (6, ["lr", "seed"])
    runs = client.sweeps.get(made["id"]).runs
    client.wait([run["job_id"] for run in runs], timeout=120)
    assert client.jobs.get(runs[4]["job_id"]).logs().strip() == "0.01 s2 {x}"
    assert client.jobs.get(runs[4]["job_id"]).data["array_id"] == made["array_id"]
    assert "0.01" in helio(server, "sweep", "show", str(made["id"])).stdout
    assert str(made["id"]) in helio(server, "sweep", "list").stdout
    file = tmp_path / "sweep.yaml"
    file.write_text("name: s\njob: {command: [echo, '{a}'], cpus: 1, memory: 64}\nlist: [{a: 1}, {a: 2}]\n")
    assert "2 runs submitted as array" in helio(server, "sweep", "submit", str(file)).stdout
    refused = helio(server, "run", "--sweep", "lr=1,2", "--", "echo {lr}")
    assert "{lr} is not allowed in text that a shell reads" in refused.stderr


def test_the_same_key_gives_the_same_sweep(client: Client) -> None:
    job = {"command": ["true"], "held": True, **SMALL}
    made = [client.sweeps.submit(job, grid={"x": [1, 2]}, idempotency_key="one").id for _ in range(2)]
    assert made[0] == made[1]
    with pytest.raises(HeliostatError, match="idempotency key"):
        client.sweeps.submit(job, grid={"x": [1, 2, 3]}, idempotency_key="one")


def test_cells_that_a_spreadsheet_would_run_are_kept_from_it(client: Client) -> None:
    made = client.sweeps.submit({"command": ["true"], "held": True, **SMALL}, list=[{"x": "=cmd()"}, {"x": "ok"}])
    assert "'=cmd()" in made.csv()


def test_metrics_are_reported_from_within_jobs_only(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HELIOSTAT_CHECKPOINT_DIR", raising=False)
    with pytest.raises(Conflict, match="from inside a job"):
        report_metric("acc", 1.0)
    monkeypatch.setenv("HELIOSTAT_CHECKPOINT_DIR", str(tmp_path))
    for name, value in (("a b", 1.0), ("acc", float("nan"))):
        with pytest.raises(Invalid):
            report_metric(name, value)
    report_metric("acc", 0.5, 3)
    done = helio(
        server, "report-metric", "loss", "2", "--step", "4", "--json", HELIOSTAT_CHECKPOINT_DIR=str(tmp_path)
    )
    assert json.loads(done.stdout) == {"name": "loss", "value": 2.0, "step": 4}
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{"name": "acc", "value": 0.5, "step": 3}, {"name": "loss", "value": 2.0, "step": 4}]


def test_strangers_see_no_sweep(client: Client) -> None:
    with pytest.raises(HeliostatError, match="There is no sweep 999999"):
        client.sweeps.get(999999)


def test_a_sweep_is_waited_for_or_followed_and_exits_with_the_first_failure(
    server: RunningServer, tmp_path: Path
) -> None:
    file, command = tmp_path / "sweep.json", ["sh", "-c", "echo was $1; exit $1", "run", "{code}"]
    file.write_text(json.dumps({"name": "codes", "grid": {"code": [0, 3]}, "job": {"command": command, **SMALL}}))
    waited = helio(server, "sweep", "submit", str(file), "--wait", "--json")
    assert waited.returncode == 3, waited.stderr
    assert [job["exit_code"] for job in json.loads(waited.stdout)["jobs"]] == [0, 3]
    followed = helio(server, "run", "--sweep", "code=0,4", "--follow", "--memory", "64M", "--", *command)
    assert followed.returncode == 4, followed.stderr
    assert sorted(line.split(": ")[1] for line in followed.stdout.splitlines()) == ["was 0", "was 4"]
    assert "1 of 2 jobs completed." in followed.stderr


def test_the_output_of_an_array_is_followed(server: RunningServer) -> None:
    ran = helio(
        server, "run", "--array", "0-1", "--follow", "--memory", "64M", "--", "echo index $HELIOSTAT_ARRAY_INDEX"
    )
    assert ran.returncode == 0, ran.stderr
    assert sorted(line.split(": ")[1] for line in ran.stdout.splitlines()) == ["index 0", "index 1"]
