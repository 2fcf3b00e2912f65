"""Which version of a dataset a job has seen."""

import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from heliostat.loops.dataset_versions import DatasetVersions, find_dataset_version
from heliostat.models import Job, JobSpec, JobState, Mount, Resources
from heliostat.models.provenance import AttemptEnvironment, provenance_to_text, text_to_attempt_environment

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def tmp_path(tmp_path):
    """A folder that everybody may read."""
    tmp_path.chmod(0o755)
    return tmp_path


def job_with(*sources):
    return Job(
        id=1,
        kind="batch",
        name="j",
        state=JobState.RUNNING,
        user="ann",
        unix_user="ann",
        project="default",
        resources=Resources(1, 100),
        spec=JobSpec(("true",), mounts=tuple(Mount(str(one), "/d") for one in sources)),
        submitted_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_a_commit_counts_before_a_version_and_a_version_before_a_fingerprint(tmp_path):
    write(tmp_path / "a.png", "x")
    assert find_dataset_version(str(tmp_path)).startswith("fingerprint ")
    write(tmp_path / "VERSION", "2.1\nmore\n")
    assert find_dataset_version(str(tmp_path)) == "version 2.1"
    write(tmp_path / ".git/HEAD", "ref: refs/heads/main\n")
    write(tmp_path / ".git/packed-refs", f"# pack-refs\n{COMMIT} refs/heads/main\n")
    assert find_dataset_version(str(tmp_path)) == f"commit {COMMIT}"
    write(tmp_path / ".git/refs/heads/main", f"{'f' * 40}\n")
    assert find_dataset_version(str(tmp_path)) == f"commit {'f' * 40}"
    write(tmp_path / ".git/HEAD", f"{COMMIT}\n")
    assert find_dataset_version(str(tmp_path)) == f"commit {COMMIT}"


def test_a_fingerprint_changes_with_names_sizes_and_times_only(tmp_path):
    file = write(tmp_path / "below/a.png", "x")
    os.utime(file, (1, 1))
    first = find_dataset_version(str(tmp_path))
    assert find_dataset_version(str(tmp_path)) == first
    os.utime(file, (1, 2))
    second = find_dataset_version(str(tmp_path))
    file.rename(tmp_path / "below/b.png")
    assert len({first, second, find_dataset_version(str(tmp_path))}) == 3


def test_what_not_everybody_may_read_is_not_told_and_no_link_is_followed(tmp_path):
    secret = write(tmp_path / "secret", "hunter2")
    data = tmp_path / "data"
    data.mkdir()
    (data / "VERSION").symlink_to(secret)
    assert find_dataset_version(str(data)).startswith("fingerprint ")
    (data / "VERSION").unlink()
    write(data / "VERSION", "root:x:0:0")
    assert find_dataset_version(str(data)).startswith("fingerprint ")
    write(data / "VERSION", "2").chmod(0o600)
    assert find_dataset_version(str(data)).startswith("fingerprint ")
    data.chmod(0o750)
    assert find_dataset_version(str(data)) is None
    assert find_dataset_version(str(tmp_path / "nothing")) is None


def test_only_what_the_admins_call_read_only_is_a_dataset(tmp_path):
    for name in ("data/scans", "home", "lab"):
        write(tmp_path / name / "VERSION", "1")
    known = DatasetVersions((f"{tmp_path}/data:ro", f"{tmp_path}/home", f"{tmp_path}/{{project}}:ro"))
    job = replace(job_with(tmp_path / "data/scans", tmp_path / "home", tmp_path / "lab"), project="lab")
    assert known.mounted_versions(job) == (f"{tmp_path}/data/scans version 1", f"{tmp_path}/lab version 1")


def test_jobs_that_start_together_look_once(tmp_path):
    times = iter([0.0, 1.0, 70.0])
    known = DatasetVersions((f"{tmp_path}:ro",), lambda: next(times))
    write(tmp_path / "VERSION", "1")
    assert known.mounted_versions(job_with(tmp_path)) == (f"{tmp_path} version 1",)
    write(tmp_path / "VERSION", "2")
    assert known.mounted_versions(job_with(tmp_path)) == (f"{tmp_path} version 1",)
    assert known.mounted_versions(job_with(tmp_path)) == (f"{tmp_path} version 2",)


def test_a_record_keeps_them_and_one_of_earlier_times_has_none():
    machine = AttemptEnvironment(("n",), datasets=("/data version 1",))
    assert text_to_attempt_environment(provenance_to_text(machine)) == machine
    assert text_to_attempt_environment('{"nodes":["n"],"gpus":[]}').datasets == ()
