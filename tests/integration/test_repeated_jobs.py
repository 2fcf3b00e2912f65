"""Jobs that are repeated and compared, on a real server."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliostat.client import Client, source_code
from heliostat.errors import Conflict, Invalid
from integration.running_server import RunningServer
from integration.unix_users import Person, needs_root
from support.server_process import ServerProcess
from support.waiting import wait_until

WAIT_SECONDS = 60
SECRET = "hunter2-5eed"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("repeated") / "home") as server:
        yield server


@pytest.fixture
def client(server: ServerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Client:
    monkeypatch.delenv("HELIOSTAT_RECORD", raising=False)
    monkeypatch.chdir(tmp_path)
    return server.client


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "train.py").write_text("print('first')\n")
    own = ["-c", "user.name=Anna", "-c", "user.email=anna@example.org"]
    for words in (["init"], ["add", "."], [*own, "commit", "-m", "begin"]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    return folder


def _machine(client: Client, job_id: int) -> dict[str, Any]:
    wait_until(lambda: client.jobs.provenance(job_id)["machines"], "its machine is recorded", WAIT_SECONDS)
    machine: dict[str, Any] = client.jobs.provenance(job_id)["machines"][-1]
    return machine


def _found(compared: dict[str, Any]) -> dict[tuple[str, str], tuple[str, str]]:
    return {(one["section"], one["field"]): (one["first"], one["second"]) for one in compared["differences"]}


def test_a_job_notes_its_code_and_its_machine(client: Client, repository: Path) -> None:
    (repository / "train.py").write_text("print('second')\n")
    job = client.submit(["true"], workdir=repository, gpus=1).wait(WAIT_SECONDS)
    record = client.jobs.provenance(job.id)
    assert "+print('second')" in record["code"]["diff"]
    assert record["code"]["folder"] == str(repository)
    machine = _machine(client, job.id)
    assert machine["attempt"] == 1
    assert machine["gpus"] == ["Simulated A100"]
    assert machine["heliostat"]


def test_many_jobs_share_one_record(server: ServerProcess, client: Client, repository: Path) -> None:
    os.chdir(repository)
    jobs = client.submit_many([{"command": ["true"]} for _ in range(5)])
    client.wait(jobs, WAIT_SECONDS)
    assert len({client.jobs.provenance(job.id)["code"]["commit"] for job in jobs}) == 1


def test_sweeps_and_workflows_note_their_code_too(client: Client, repository: Path) -> None:
    os.chdir(repository)
    sweep = client.sweeps.submit({"command": ["true"]}, name="lr", grid={"lr": [1, 2]})
    workflow = client.workflows.submit({"name": "one", "jobs": {"first": {"command": ["true"]}}})
    jobs = [run["job_id"] for run in sweep.runs]
    jobs += [job.id for job in workflow.jobs.values()]
    assert len(jobs) == 3
    assert {client.jobs.provenance(job)["code"]["folder"] for job in jobs} == {str(repository)}
    unnoted = client.sweeps.submit({"command": ["true"]}, record=False, name="lr", grid={"lr": [1]})
    assert client.jobs.provenance(unnoted.runs[0]["job_id"])["code"] is None


def test_a_job_without_a_record_can_be_repeated_too(client: Client) -> None:
    job = client.submit(["true"], record=False)
    assert client.jobs.provenance(job.id)["code"] is None
    again = client.jobs.rerun(job.id)
    assert again["notes"] == []
    assert client.jobs.provenance(again["job"]["id"])["rerun_of"] == job.id
    assert client.jobs.provenance(job.id)["reruns"] == [again["job"]["id"]]


def test_a_repeated_job_asks_for_the_same_but_for_the_changes(client: Client) -> None:
    job = client.submit(
        "echo $SEED $OTHER", gpus=1, memory="512M", time="1h", name="mine", env={"SEED": "1", "OTHER": "x"}
    )
    answer = client.jobs.rerun(job.id, gpus=2, env={"SEED": "7"}, time="2h")
    again = client.jobs.get(answer["job"]["id"]).wait(WAIT_SECONDS)
    assert again.logs().strip() == "7 x"
    assert (again.data["gpus"], again.data["name"], again.data["time_limit_seconds"]) == (2, "mine", 7200)
    assert again.data["memory_mib"] == 512


def test_code_that_was_uploaded_is_repeated_though_the_folder_has_changed(
    client: Client, repository: Path
) -> None:
    job = client.submit(["python3", "train.py"], upload=repository).wait(WAIT_SECONDS)
    (repository / "train.py").write_text("print('later')\n")
    again = client.jobs.get(client.jobs.rerun(job.id)["job"]["id"]).wait(WAIT_SECONDS)
    assert again.logs() == job.logs() == "first\n"
    assert client.jobs.provenance(again.id)["code"] == client.jobs.provenance(job.id)["code"]
    changed = client.jobs.get(client.jobs.rerun(job.id, upload=client.upload(repository))["job"]["id"]).wait(
        WAIT_SECONDS
    )
    assert changed.logs() == "later\n"
    found = _found(client.jobs.diff(job.id, changed.id))
    assert ("code", "train.py") in found


def test_the_commit_is_noted_of_a_folder_that_was_uploaded_before_the_job(
    client: Client, repository: Path
) -> None:
    """As `helio run --upload` does it, which shows how far the upload is."""
    sent = client.upload(repository)
    job = client.submit(["true"], upload=sent)
    code = client.jobs.provenance(job.id)["code"]
    assert (code["folder"], len(code["commit"])) == (str(repository), 40)
    (repository / "train.py").write_text("print('later')\n")
    source_code._cache.clear()
    again = client.jobs.rerun(job.id, upload=client.upload(repository))["job"]["id"]
    assert "+print('later')" in client.jobs.provenance(again)["code"]["diff"]
    assert client.jobs.provenance(client.jobs.rerun(job.id)["job"]["id"])["code"] == code


def test_a_folder_that_has_changed_since_is_told(client: Client, repository: Path) -> None:
    job = client.submit(["true"], workdir=repository)
    assert client.jobs.rerun(job.id)["notes"] == []
    (repository / "train.py").write_text("print('later')\n")
    source_code._cache.clear()
    (note,) = client.jobs.rerun(job.id)["notes"]
    assert str(repository) in note
    assert "commit" in note


def test_code_that_is_gone_cannot_be_repeated(server: ServerProcess, client: Client, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "only").write_text("here")
    job = client.submit(["true"], upload=tmp_path / "code").wait(WAIT_SECONDS)
    for path in (server.home / "uploads").rglob(job.data["spec"]["upload"] if "spec" in job.data else "*"):
        if path.parent.name == "trees":
            path.unlink()
    with pytest.raises(Conflict, match="has been deleted"):
        client.jobs.rerun(job.id)


def test_a_repeated_request_makes_one_job_though_the_code_has_changed(client: Client, repository: Path) -> None:

    first = client.submit(["true"], workdir=repository, idempotency_key="once")
    (repository / "train.py").write_text("print('later')\n")
    source_code._cache.clear()
    assert client.submit(["true"], workdir=repository, idempotency_key="once").id == first.id
    one = client.jobs.rerun(first.id, idempotency_key="again")["job"]["id"]
    assert client.jobs.rerun(first.id, idempotency_key="again")["job"]["id"] == one


def test_what_differed_is_said_and_no_value_of_a_variable(client: Client) -> None:
    one = client.submit("exit 3", gpus=1, env={"TOKEN": SECRET, "SAME": SECRET}, record=False).wait(WAIT_SECONDS)
    other = client.submit("exit 0", gpus=2, env={"TOKEN": "else", "SAME": SECRET, "NEW": "1"}, record=False).wait(
        WAIT_SECONDS
    )
    for job in (one, other):
        _machine(client, job.id)
    compared = client.jobs.diff(one.id, other.id)
    found = _found(compared)
    assert found["request", "gpus"] == ("1", "2")
    assert found["result", "exit_code"] == ("3", "0")
    assert found["environment", "TOKEN"] == ("set", "another value")
    assert found["environment", "NEW"] == ("not set", "set")
    assert ("environment", "SAME") not in found
    assert found["machine", "gpus"] == ("Simulated A100", "Simulated A100, Simulated A100")
    assert SECRET not in str(compared)
    assert SECRET not in str(client.jobs.provenance(one.id))


def test_a_job_is_the_same_as_itself(client: Client) -> None:
    job = client.submit("true", env={"A": "1"}).wait(WAIT_SECONDS)
    compared = client.jobs.diff(job.id, job.id)
    assert compared["differences"] == []
    assert "environment" in compared["same"]


@pytest.mark.parametrize("changes", [{"gpus": "many"}, {"nothing": 1}, {"env": "x"}, {"command": None}])
def test_a_change_that_makes_no_sense_is_refused(client: Client, changes: dict[str, Any]) -> None:
    job = client.submit(["true"], held=True)
    with pytest.raises(Invalid):
        client.jobs.rerun(job.id, **changes)


def test_the_machine_of_an_attempt_is_recorded_though_the_server_was_killed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "home") as server:
        job = server.client.submit("sleep 1000", gpus=1, record=False)
        wait_until(lambda: job.refresh().state == "running", "it runs", WAIT_SECONDS)
        server.kill()
        server.start()
        assert _machine(server.client, job.id)["gpus"] == ["Simulated A100"]
        job.cancel(force=True)
        job.wait(WAIT_SECONDS)


@needs_root
def test_nobody_gets_at_the_secrets_of_others_by_repeating_or_comparing(ann: Person, bob: Person) -> None:
    server = RunningServer('server.simulate_gpus = "2xA100"\n')
    try:
        job_id = server.submit(ann.uid, command=["true"], env={"TOKEN": SECRET})
        own = server.submit(bob.uid, command=["true"], env={"TOKEN": SECRET})
        for path in (f"/jobs/{job_id}/record", f"/jobs/{job_id}/diff/{own}", f"/jobs/{own}/diff/{job_id}"):
            assert server.ask("GET", path, uid=bob.uid).status == 403
        assert server.ask("POST", f"/jobs/{job_id}/rerun", {}, uid=bob.uid).status == 403
        # An admin may inspect her job, and still learns nothing of the value, not even by guessing.
        guess = server.submit(command=["true"], env={"TOKEN": SECRET})
        compared = server.ask("GET", f"/jobs/{job_id}/diff/{guess}").json
        (found,) = [one for one in compared["differences"] if one["field"] == "TOKEN"]
        assert (found["first"], found["second"]) == ("set (not compared)", "set (not compared)")
        refused = server.ask("POST", f"/jobs/{job_id}/rerun", {})
        assert refused.status == 422
        assert "TOKEN" in refused.error["message"]
        again = server.ask("POST", f"/jobs/{job_id}/rerun", {"changes": {"env": {"TOKEN": "mine"}}})
        assert again.status == 201
        assert again.json["job"]["user"] != ann.name
    finally:
        server.remove()
