"""Attempts on a machine without cgroups."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from heliostat.config import Home, Settings
from heliostat.engines.local import engine as local
from heliostat.engines.local.cgroup_fallback import FallbackCgroup, container_runtime_folder
from heliostat.engines.local.cgroups import CgroupsUnavailable
from heliostat.engines.local.engine import LocalEngine
from heliostat.models import Attempt, AttemptEnded, EndCause, Job, JobSpec, JobState, Observation, Resources
from heliostat.store.timestamps import to_datetime

OF_A_TOOL = {
    "XDG_RUNTIME_DIR": f"{container_runtime_folder('test')}/1.1"
}  # all that what podman leaves behind knows


@pytest.mark.parametrize("mark", [{"HELIOSTAT_MARK": "test-1.1"}, OF_A_TOOL], ids=["own", "tool"])
def test_what_carries_the_mark_is_found_wherever_it_went_and_must_be_gone_before_the_end(
    mark: dict[str, str],
) -> None:
    marked = FallbackCgroup("test", "1.1")
    process = subprocess.Popen(["sleep", "600"], env={**os.environ, **mark}, start_new_session=True)
    try:
        assert marked.pids() == [process.pid]
        assert not marked.remove()
        assert marked.kill()
        assert process.wait(120) == -9
        assert marked.remove()
    finally:
        process.kill()
        process.wait()


def test_leftovers_of_a_finished_job_are_reaped_before_its_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "find_cgroups", lambda instance: CgroupsUnavailable("none here"))
    home = Home(tmp_path)
    for folder in (home.jobs, home.attempts):
        folder.mkdir(mode=0o711)
    engine = LocalEngine(Settings(home))
    ended = threading.Event()
    reports: list[Observation] = []

    def keep(observations: list[Observation]) -> None:
        reports.extend(observations)
        if any(isinstance(seen, AttemptEnded) for seen in observations):
            ended.set()

    engine.set_observation_callback(keep)
    pid_file = tmp_path / "pid"
    engine.start([_attempt(f"setsid sleep 600 & echo $! > {pid_file}; exit 3")])
    try:
        assert ended.wait(120)
        end = reports[-1]
        assert isinstance(end, AttemptEnded)
        assert (end.cause, end.exit_code) == (EndCause.EXITED, 3)
        assert not Path(f"/proc/{pid_file.read_text().strip()}").exists() or _is_zombie(pid_file)
    finally:
        engine.close()


def _is_zombie(pid_file: Path) -> bool:
    return ") Z " in Path(f"/proc/{pid_file.read_text().strip()}/stat").read_text()


def _attempt(line: str) -> Attempt:
    import getpass

    spec = JobSpec(("/bin/sh", "-c", line), workdir="/")
    me = getpass.getuser()
    job = Job(1, "batch", "x", JobState.STARTING, me, me, "p", Resources(1, 64), spec, to_datetime(0.0), attempt=1)
    return Attempt(job.attempt_id, job, "here")
