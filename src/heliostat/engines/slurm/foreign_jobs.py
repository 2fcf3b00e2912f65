"""Foreign jobs: jobs in Slurm that were not submitted through Heliostat. They are shown, never changed.

Their GPUs need one command per job, their names one command for all: both are read once and cached.
"""

import pwd
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime

from heliostat.engines.slurm.client import SlurmClient
from heliostat.engines.slurm.command_output import (
    ArrayElementId,
    SlurmJob,
    gpus_in_tres,
    parse_size_mib,
    parse_timestamp,
    parse_tres,
    parse_whole_number,
    parse_whole_seconds,
)
from heliostat.engines.slurm.explain import explain_reason
from heliostat.engines.slurm.mapping import device_uuid
from heliostat.models import ForeignJob, TaskPlacement

_MAX_NAME_LENGTH = 64
_DEVICE_QUERIES_PER_REFRESH = 20  # the other jobs follow in the next refresh
_STATES = {"SUSPENDED": "suspended", "COMPLETING": "completing"}
_Run = tuple[int, datetime | None]  # job id and start: Slurm may reuse ids


class ForeignJobs:
    def __init__(self, client: SlurmClient) -> None:
        self._client = client
        self._names: dict[int, str] = {}
        self._devices: dict[_Run, Mapping[str, tuple[int, ...]]] = {}
        self.jobs: tuple[ForeignJob, ...] = ()

    def refresh(self, jobs: Mapping[int, SlurmJob], ours: Collection[int]) -> None:
        """`ours`: ids of Heliostat's own jobs. Ended jobs are ignored."""
        foreign = [job for job in jobs.values() if job.job_id not in ours and not job.is_terminal]
        sizes = Counter(map(_row, foreign))
        foreign = list({_row(job): job for job in foreign}.values())
        self._read_names(foreign)
        self._read_devices(foreign)
        self.jobs = tuple(
            make_foreign_job(
                job, self._names.get(job.job_id, ""), self._devices.get(_run(job), {}), sizes[_row(job)]
            )
            for job in foreign
        )

    def _read_names(self, foreign: list[SlurmJob]) -> None:
        if any(job.job_id not in self._names for job in foreign):
            names = self._client.job_names()
            self._names = {job.job_id: sanitize_text(names.get(job.job_id, "")) for job in foreign}

    def _read_devices(self, foreign: list[SlurmJob]) -> None:
        holders = [job for job in foreign if job.has_started and parse_job_resources(job.queue_details.tres)[2]]
        self._devices = {_run(job): self._devices[_run(job)] for job in holders if _run(job) in self._devices}
        unknown = [job for job in holders if _run(job) not in self._devices]
        for job in unknown[:_DEVICE_QUERIES_PER_REFRESH]:
            self._devices[_run(job)] = self._client.job_devices(job)


def make_foreign_job(
    job: SlurmJob, name: str, devices: Mapping[str, tuple[int, ...]], elements: int = 1
) -> ForeignJob:
    """`elements`: how many array elements it represents."""
    cpus, memory_mib, gpus = parse_job_resources(job.queue_details.tres)
    return ForeignJob(
        id=f"slurm:{_row(job)}",
        user=user_name(job.uid),
        name=name,
        state="pending" if job.is_waiting else _STATES.get(job.state, "running"),
        reason=explain_reason(job.reason).message if job.is_waiting else None,
        cpus=cpus,
        memory_mib=memory_mib,
        gpus=gpus,
        tasks=elements,
        places=tuple(_places(job, devices)) if job.has_started else (),
        submitted_at=parse_timestamp(job.queue_details.submit_time),
        started_at=job.started_at if job.has_started else None,
        time_limit_seconds=parse_whole_seconds(job.queue_details.time_limit),
        cancel_command=f"scancel {_row(job)}",
    )


def parse_job_resources(tres: str) -> tuple[int, int, int]:
    """Cpus, MiB of memory and GPUs in `cpu=2,mem=1.50G,node=1,gres/gpu=3`."""
    parts = parse_tres(tres)
    gpus, _ = gpus_in_tres(parts)
    return parse_whole_number(parts.get("cpu", "")) or 0, round(parse_size_mib(parts.get("mem", "")) or 0), gpus


def sanitize_text(text: str) -> str:
    """One short printable line of untrusted text."""
    printable = (character if character.isprintable() else " " for character in text[: 4 * _MAX_NAME_LENGTH])
    return "".join(printable)[:_MAX_NAME_LENGTH].strip()


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def _row(job: SlurmJob) -> int:
    """Waiting elements of an array share a row: there may be thousands."""
    return job.job_id.array_job_id if job.is_waiting and isinstance(job.job_id, ArrayElementId) else job.job_id


def _run(job: SlurmJob) -> _Run:
    return job.job_id, job.started_at


def _places(job: SlurmJob, devices: Mapping[str, tuple[int, ...]]) -> Iterator[TaskPlacement]:
    for node in job.nodes:
        yield TaskPlacement(node, tuple(device_uuid(node, index) for index in devices.get(node, ())))
