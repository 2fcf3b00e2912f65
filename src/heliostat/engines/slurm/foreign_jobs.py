"""Jobs that went to Slurm without us: shown, never touched.

Which GPUs they have costs a question for each job, and their names one for all: both are asked once and kept.
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

_LONGEST_NAME = 64
_ASKED_AT_ONCE = 20  # jobs whose GPUs are asked for in one look; the rest follow in the next
_STATES = {"SUSPENDED": "suspended", "COMPLETING": "completing"}
_Run = tuple[int, datetime | None]  # a number and a start: numbers and names may come again


class ForeignJobs:
    def __init__(self, client: SlurmClient) -> None:
        self._client = client
        self._names: dict[int, str] = {}
        self._devices: dict[_Run, Mapping[str, tuple[int, ...]]] = {}
        self.jobs: tuple[ForeignJob, ...] = ()

    def refresh(self, jobs: Mapping[int, SlurmJob], ours: Collection[int]) -> None:
        """At those of `jobs` that are not over and not ours."""
        foreign = [job for job in jobs.values() if job.job_id not in ours and not job.is_terminal]
        sizes = Counter(map(_row, foreign))
        foreign = list({_row(job): job for job in foreign}.values())
        self._ask_names(foreign)
        self._ask_devices(foreign)
        self.jobs = tuple(
            make_foreign_job(
                job, self._names.get(job.job_id, ""), self._devices.get(_run(job), {}), sizes[_row(job)]
            )
            for job in foreign
        )

    def _ask_names(self, foreign: list[SlurmJob]) -> None:
        if any(job.job_id not in self._names for job in foreign):
            said = self._client.job_names()
            self._names = {job.job_id: sanitize_text(said.get(job.job_id, "")) for job in foreign}

    def _ask_devices(self, foreign: list[SlurmJob]) -> None:
        holders = [job for job in foreign if job.has_started and parse_job_resources(job.queue_details.tres)[2]]
        self._devices = {_run(job): self._devices[_run(job)] for job in holders if _run(job) in self._devices}
        unknown = [job for job in holders if _run(job) not in self._devices]
        for job in unknown[:_ASKED_AT_ONCE]:
            self._devices[_run(job)] = self._client.job_devices(job)


def make_foreign_job(
    job: SlurmJob, name: str, devices: Mapping[str, tuple[int, ...]], elements: int = 1
) -> ForeignJob:
    """`elements`: how many of its array it stands for."""
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
    """Cpus, MiB of memory and GPUs of `cpu=2,mem=1.50G,node=1,gres/gpu=3`."""
    parts = parse_tres(tres)
    gpus, _ = gpus_in_tres(parts)
    return parse_whole_number(parts.get("cpu", "")) or 0, round(parse_size_mib(parts.get("mem", "")) or 0), gpus


def sanitize_text(text: str) -> str:
    """Other people's text, on one short line."""
    return "".join(sign if sign.isprintable() else " " for sign in text[: 4 * _LONGEST_NAME])[
        :_LONGEST_NAME
    ].strip()


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def _row(job: SlurmJob) -> int:
    """Elements of an array that wait are one row: there may be thousands."""
    return job.job_id.array_job_id if job.is_waiting and isinstance(job.job_id, ArrayElementId) else job.job_id


def _run(job: SlurmJob) -> _Run:
    return job.job_id, job.started_at


def _places(job: SlurmJob, devices: Mapping[str, tuple[int, ...]]) -> Iterator[TaskPlacement]:
    for node in job.nodes:
        yield TaskPlacement(node, tuple(device_uuid(node, index) for index in devices.get(node, ())))
