"""A real Airflow runs a DAG whose tasks are jobs."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from integration.running_server import RunningServer

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv" / "airflow" / "bin" / "python"
DAG = """
from airflow.sdk import dag, task
from heliostat_airflow import HeliostatHook, HeliostatOperator

@dag(schedule=None)
def jobs():
    small = dict(cpus=1, memory=64, workdir="/")
    first = HeliostatOperator(task_id="first", command="echo hello from {{ ti.task_id }}", name="plain", **small)
    second = HeliostatOperator(task_id="second", command=["sh", "-c", "echo $WHO"], env={"WHO": "deferred"},
                               deferrable=True, **small)

    @task
    def check(told):
        job = HeliostatHook().client().jobs.get(told["job_id"])
        assert (job.ok, job.exit_code, told["state"]) == (True, 0, "completed"), told

    first >> second
    check(first.output) >> check.override(task_id="check_second")(second.output)

@dag(schedule=None)
def fails():
    HeliostatOperator(task_id="only", command="echo before; exit 7", cpus=1, memory=64, workdir="/", retries=0)

jobs()
fails()
"""


@pytest.fixture(scope="module")
def airflow(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which a command of Airflow finds its database, its DAGs and our server."""
    if not PYTHON.exists():
        pytest.skip("Airflow is not installed: scripts/install-airflow")
    home = tmp_path_factory.mktemp("airflow")
    (home / "dags").mkdir()
    (home / "dags" / "jobs.py").write_text(DAG)
    token = server.ask("POST", "/tokens", {"name": "airflow"}).json["token"]
    connection = {"conn_type": "heliostat", "host": server.url, "password": token}
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW_CONN_HELIOSTAT_DEFAULT": json.dumps(connection),
    }


def run(airflow: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(PYTHON), "-m", "airflow", *words]
    return subprocess.run(
        command, env=airflow, cwd=airflow["AIRFLOW_HOME"], capture_output=True, text=True, timeout=500, check=False
    )


@pytest.mark.timeout(900)
def test_a_dag_runs_as_jobs_and_ends_as_they_do(airflow: dict[str, str], server: RunningServer) -> None:
    made = run(airflow, "db", "migrate")
    assert made.returncode == 0, made.stdout + made.stderr
    good = run(airflow, "dags", "test", "jobs")
    said = good.stdout + good.stderr
    assert good.returncode == 0, said
    assert re.search(r"state[^\n]*success", said), said
    jobs = {job["name"]: job for job in server.ask("GET", "/jobs?limit=10").json["items"]}
    assert {name: jobs[name]["state"] for name in ("plain", "jobs.second")} == {
        "plain": "completed",
        "jobs.second": "completed",
    }
    assert server.output(jobs["plain"]["id"]) == "hello from first\n"
    assert server.output(jobs["jobs.second"]["id"]) == "deferred\n"

    bad = run(airflow, "dags", "test", "fails")
    said = bad.stdout + bad.stderr
    assert "ended as failed: exit code 7" in said, said
    assert server.jobs() == max(job["id"] for job in jobs.values()) + 1, "tried once, one job"
