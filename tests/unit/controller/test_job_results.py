"""What jobs leave in their folders: values they hand on, metrics they report. Their users may leave anything."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from heliostat.config import Home
from heliostat.controller import job_results
from heliostat.controller.job_results import (
    MAX_METRICS,
    MAX_OUTPUTS,
    parse_outputs,
    read_metrics,
    read_outputs,
)
from heliostat.engines.job_file_reader import read_owned_file
from heliostat.engines.job_folders import prepare_workflow_folder
from heliostat.engines.job_variables import RunAsUser, workflow_mounts, workflow_variables
from heliostat.models import Job, JobSpec, JobState, Resources
from heliostat.models.workflows import SWEEP, WORKFLOW, WorkflowMembership
from support.fake_engines import FilesEngine

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ME = RunAsUser("me", os.getuid(), os.getgid(), "/home/me", "/bin/sh")


def a_job(part: WorkflowMembership | None) -> Job:
    return Job(
        7, "batch", "prep", JobState.RUNNING, "me", "me", "p", Resources(), JobSpec(("true",)), NOW, part=part
    )


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = a_job(WorkflowMembership(WORKFLOW, 3, "prep"))
    prepare_workflow_folder(made, str(tmp_path), ME)
    return made


def reported(home: Path, text: str, name: str = "metrics.jsonl") -> dict[str, float]:
    folder = home / "jobs" / "7" / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return {metric.name: metric.value for metric in read_metrics(FilesEngine(home), 7).values()}


def test_lines_of_key_and_value_are_read_and_the_last_of_a_name_counts(tmp_path: Path, job: Job) -> None:
    variables = workflow_variables(job, str(tmp_path))
    with open(variables["HELIOSTAT_OUTPUT"], "a", encoding="utf-8") as file:
        file.write("best=1\nno value\n=x\n bad name=1\nbest=2=3\nempty=\n")
    assert read_outputs(Home(tmp_path), job) == {"best": "2=3", "empty": ""}
    assert variables["HELIOSTAT_OUTPUT_DIR"] == f"{tmp_path}/workflows/3/prep"


def test_a_new_attempt_begins_without_the_values_of_the_last(tmp_path: Path, job: Job) -> None:
    (tmp_path / "workflows/3/prep/.output").write_text("best=1\n")
    (tmp_path / "workflows/3/prep/model.bin").write_text("kept")
    prepare_workflow_folder(job, str(tmp_path), ME)
    assert read_outputs(Home(tmp_path), job) == {}
    assert (tmp_path / "workflows/3/prep/model.bin").exists()


def test_others_read_a_jobs_folder_and_only_it_writes_there_in_containers(tmp_path: Path, job: Job) -> None:
    mounts = [str(mount) for mount in workflow_mounts(job, "/h")]
    assert mounts == ["/h/workflows/3:/h/workflows/3:ro", "/h/workflows/3/prep:/h/workflows/3/prep"]
    assert (
        workflow_mounts(a_job(None), "/h") == workflow_mounts(a_job(WorkflowMembership(SWEEP, 1, "0")), "/h") == []
    )
    assert (tmp_path / "workflows/3").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "workflows/3/prep").stat().st_mode & 0o777 == 0o700


def test_links_pipes_and_folders_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key=secret\n")
    (tmp_path / "folder").mkdir()
    os.symlink(tmp_path / "secret", tmp_path / "folder" / "link")
    os.mkfifo(tmp_path / "folder" / "pipe")
    (tmp_path / "folder" / "sub").mkdir()
    os.symlink(tmp_path, tmp_path / "elsewhere")
    assert [read_owned_file(str(tmp_path / "folder"), name, 100) for name in ("link", "pipe", "sub", "none")] == [
        ""
    ] * 4
    assert read_owned_file(str(tmp_path / "elsewhere"), "secret", 100) == ""


def test_values_are_few_and_short() -> None:
    found = parse_outputs("\n".join(f"k{number}={number}" for number in range(1000)) + f"\nlong={'x' * 5000}")
    assert len(found) == MAX_OUTPUTS
    assert found["k999"] == "999"
    assert "long" not in found


def test_of_a_large_file_the_end_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a" * 5000 + "\nlast=1\n")
    assert parse_outputs(read_owned_file(str(tmp_path), "file", 100, end=True)) == {"last": "1"}


def test_metrics_are_read_from_lines_and_from_a_document(tmp_path: Path) -> None:
    lines = [{"name": "acc", "value": 0.5, "step": 1}, {"name": "acc", "value": 0.9, "step": 2}]
    found = reported(tmp_path, "\n".join(map(json.dumps, lines)) + "\n")
    assert found == {"acc": 0.9}
    one = read_metrics(FilesEngine(tmp_path), 7)["acc"]
    assert (one.step, one.least, one.most, one.count) == (2, 0.5, 0.9, 2)
    assert reported(tmp_path, '{"loss": 3, "acc": 0.1, "x": "y"}', "metrics.json") == {"acc": 0.1, "loss": 3.0}


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[]",
        '{"name": "a b", "value": 1}',
        '{"name": "a", "value": NaN}',
        '{"name": "a", "value": 1e999}',
        '{"name": "a", "value": true}',
        '{"name": "a"}',
        '{"name": ["a"], "value": 1}',
        "[" * 100_000,
        f'{{"name": "a", "value": 1{"0" * 400}}}',
    ],
)
def test_what_is_no_report_is_passed_over(tmp_path: Path, line: str) -> None:
    assert reported(tmp_path, f'{line}\n{{"name": "ok", "value": 1}}\n') == {"ok": 1.0}
    with_document = reported(tmp_path, line, "metrics.json")
    assert set(with_document) <= {"ok", "value"}


def test_metrics_are_few(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"name": f"m{number}", "value": 1}) for number in range(1000))
    assert len(reported(tmp_path, lines)) == MAX_METRICS


def test_values_together_are_small_and_the_newest_stay() -> None:
    found = parse_outputs("\n".join(f"k{number}={'x' * 1000}" for number in range(20)))
    assert list(found) == [f"k{number}" for number in range(12, 20)]
    assert len(json.dumps(found)) <= job_results.MAX_OUTPUT_BYTES
    assert len(json.dumps(parse_outputs("\n".join(f"k{number}={chr(1) * 500}" for number in range(9))))) <= 8192


def test_of_many_reports_the_last_count(tmp_path: Path) -> None:
    lines = "\n".join(json.dumps({"name": "acc", "value": number}) for number in range(10))
    assert reported(tmp_path, lines) == {"acc": 9.0}
    assert read_metrics(FilesEngine(tmp_path), 7, max_lines=3)["acc"].count == 3


def test_of_a_large_file_of_reports_only_the_end_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    plain = json.loads

    def counted(text: str) -> object:
        read.append(text)
        return plain(text)

    monkeypatch.setattr(job_results.json, "loads", counted)
    last = '{"name": "ok", "value": 1}\n'
    for junk in ("\n", "x\n", "{\n"):
        read.clear()
        assert reported(tmp_path, junk * 100_000 + last) == {"ok": 1.0}
        assert len(read) <= job_results.MAX_METRIC_LINES + 1
        assert all(one.startswith("{") for one in read)


def test_a_file_that_cannot_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    (tmp_path / "file").write_text("a=1\n")
    monkeypatch.setattr(os, "pread", broken)
    assert read_owned_file(str(tmp_path), "file", 100) == ""
