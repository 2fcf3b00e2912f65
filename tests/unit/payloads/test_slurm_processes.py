"""Which processes are part of a job, as Slurm's cgroups or what they were told at their start say."""

import pytest

from heliostat.payloads import slurm_processes
from heliostat.payloads.slurm_processes import SlurmJobProcesses

OURS = b"11:memory:/slurm/uid_1000/job_12/step_0\n1:name=systemd:/system.slice/slurmd.service\n"
OTHER = b"11:memory:/slurm/uid_1000/job_123/step_0\n"
NEWER = b"0::/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0\n"
NOWHERE = b"0::/user.slice/user-1000.slice\n"


def stat(parent: int) -> bytes:
    return b"9 (a) b) S %d 1 1" % parent


@pytest.fixture
def proc(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, str], bytes]:
    files: dict[tuple[int, str], bytes] = {}
    monkeypatch.setattr(slurm_processes, "_read", lambda pid, name: files.get((pid, name), b""))
    monkeypatch.setattr(slurm_processes, "_is_ours", lambda pid: True)
    monkeypatch.setattr(slurm_processes.os, "getpid", lambda: 1000)
    return files


@pytest.mark.parametrize("own", [OURS, NEWER])
def test_where_slurm_keeps_cgroups_they_alone_decide(proc: dict[tuple[int, str], bytes], own: bytes) -> None:
    proc[1000, "cgroup"] = own
    proc[1, "cgroup"], proc[2, "cgroup"], proc[3, "cgroup"] = OURS, OTHER, NOWHERE
    proc[2, "environ"] = proc[3, "environ"] = b"SLURM_JOB_ID=12\0"  # says anybody
    job = SlurmJobProcesses("12", "mark-1.1")
    assert [job.includes(pid) for pid in (1, 2, 3)] == [own in (OURS, NEWER), False, False]


def test_else_it_is_known_by_what_it_or_who_started_it_was_told(proc: dict[tuple[int, str], bytes]) -> None:
    proc[1000, "cgroup"] = NOWHERE
    proc[10, "environ"] = b"A=1\0SLURM_JOB_ID=12\0"
    proc[11, "environ"], proc[11, "stat"] = b"", stat(10)
    proc[12, "environ"] = b"HELIOSTAT_MARK=mark-1.1\0PATH=/bin\0"
    proc[20, "environ"] = b"SLURM_JOB_ID=123\0"
    proc[21, "environ"], proc[21, "stat"] = b"PATH=/bin\0", stat(20)
    proc[22, "environ"], proc[22, "stat"] = b"XSLURM_JOB_ID=12\0", stat(1)
    proc[30, "stat"] = stat(30)  # no parent's parent without end
    job = SlurmJobProcesses("12", "mark-1.1")
    assert [pid for pid in (10, 11, 12, 20, 21, 22, 30, 40) if job.includes(pid)] == [10, 11, 12]


def test_nobody_passes_for_a_member_of_a_job_without_a_number(proc: dict[tuple[int, str], bytes]) -> None:
    proc[1000, "cgroup"] = NOWHERE
    proc[10, "environ"] = b"PATH=/bin\0"
    assert not SlurmJobProcesses("", "mark").includes(10)
