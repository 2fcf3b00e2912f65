"""Import of past jobs from the output of `sacct --parsable2` with a header, with fields in any order. Pure.

A job's line is followed by the lines of its steps. Job names may contain the delimiter and line breaks: if the
name is the last field it takes the rest of its line, and lines that cannot be a job's are skipped. A command after
the name may be missing.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo

from heliostat.engines.contract import PastJob
from heliostat.engines.slurm.batch_script import submitted_attempt
from heliostat.engines.slurm.command_output import (
    expand_host_list,
    gpus_in_tres,
    parse_duration_seconds,
    parse_size_mib,
    parse_tres,
    parse_whole_number,
)
from heliostat.engines.slurm.node_probe import PROBE_NAME
from heliostat.errors import Invalid
from heliostat.models import AttemptUsage, JobState

REQUIRED_FIELDS = ("JobID", "User", "Account", "State", "Submit", "Start", "End")
NOT_FINISHED, UNREADABLE_LINES, PROBES = "not over", "unreadable lines", "probes of helio doctor"
_ENDS: dict[str, tuple[JobState, str | None]] = {
    "COMPLETED": (JobState.COMPLETED, None),
    "FAILED": (JobState.FAILED, None),
    "OUT_OF_MEMORY": (JobState.FAILED, "out of memory"),
    "CANCELLED": (JobState.CANCELLED, "cancelled"),
    "PREEMPTED": (JobState.CANCELLED, "preempted for another job"),
    "TIMEOUT": (JobState.TIMED_OUT, "time limit reached"),
    "DEADLINE": (JobState.TIMED_OUT, "its deadline had passed"),
    "NODE_FAIL": (JobState.LOST, "its node failed"),
    "BOOT_FAIL": (JobState.LOST, "its node could not be booted"),
}
_NAME, _COMMAND = "JobName", "SubmitLine"  # any text
_NO_NODES = ("", "None assigned", "(null)", "None")
_MAX_PROBE_SECONDS = 60
_MAX_TIMESTAMP = 2**33
_MAX_TEXT_LENGTH = 128
_MAX_CPUS, _MAX_MIB = 10_000_000, 2**40


@dataclass(slots=True)
class SacctReader:
    """Reads the lines of one file or one call; counts skipped jobs and lines."""

    zone: tzinfo = UTC  # of times that are not seconds since 1970
    delimiter: str = "|"
    skipped_counts: Counter[str] = field(default_factory=Counter)

    def read_jobs(self, lines: Iterable[str]) -> Iterator[PastJob]:
        """In the order of the lines. Raises Invalid if the header lacks required fields."""
        rest = iter(lines)
        header = next(rest, "").rstrip("\r\n").split(self.delimiter)
        if missing := [name for name in REQUIRED_FIELDS if name not in header]:
            raise Invalid(
                f"The header of the file lacks fields of sacct: {', '.join(missing)}.",
                "Create the file with: sacct --allusers --parsable2 --format=… (with its header).",
            )
        last: PastJob | None = None
        for line in rest:
            fields = self._fields(header, line)
            if fields is None:
                continue
            if "." in fields["JobID"]:
                last = last and _with_step(last, fields)
                continue
            if last is not None:
                yield last
            last = self._job(fields)
        if last is not None:
            yield last

    def _fields(self, header: list[str], line: str) -> dict[str, str] | None:
        max_splits = len(header) - 1 if header[-1] in (_NAME, _COMMAND) else -1  # the last may have delimiters
        words = line.rstrip("\r\n").split(self.delimiter, max_splits)
        if header[-2:] == [_NAME, _COMMAND] and len(words) == len(header) - 1:
            words.append("")  # the name has a line break
        if len(words) == len(header) and words[header.index("JobID")][:1].isdecimal():
            return dict(zip(header, words, strict=True))
        if line.strip():
            self.skipped_counts[UNREADABLE_LINES] += 1
        return None

    def _job(self, fields: Mapping[str, str]) -> PastJob | None:
        state = _ENDS.get(fields["State"].partition(" ")[0])  # "CANCELLED by 1000"
        submitted_at, ended_at = self._time(fields["Submit"]), self._time(fields["End"])
        if state is None or ended_at is None:
            self.skipped_counts[NOT_FINISHED] += 1
            return None
        if submitted_at is None or not fields["User"].strip():
            self.skipped_counts[UNREADABLE_LINES] += 1
            return None
        job = _job(fields, state, (submitted_at, self._time(fields["Start"]), ended_at))
        if job.name == PROBE_NAME and (job.time_limit_seconds or math.inf) <= _MAX_PROBE_SECONDS:
            self.skipped_counts[PROBES] += 1
            return None
        return job

    def _time(self, text: str) -> datetime | None:
        """`1794805360`, `2026-11-16T05:02:34`. None for "Unknown", "None" and the like."""
        if (seconds := parse_whole_number(text)) is not None:
            return datetime.fromtimestamp(seconds, UTC) if 0 < seconds < _MAX_TIMESTAMP else None
        try:
            at = datetime.fromisoformat(text)
            at = (at if at.tzinfo else at.replace(tzinfo=self.zone)).astimezone(UTC)
        except (ValueError, OverflowError):
            return None
        return at if 0 < at.timestamp() < _MAX_TIMESTAMP else None


_Times = tuple[datetime, datetime | None, datetime]


def _job(fields: Mapping[str, str], end: tuple[JobState, str | None], times: _Times) -> PastJob:
    submitted_at, started_at, ended_at = times
    nodes = _nodes(fields, started_at, ended_at)
    started_at = max(started_at, submitted_at) if nodes and started_at else None
    ended_at = max(ended_at, started_at or submitted_at)
    state, reason = end
    code = _exit_code(fields.get("ExitCode", "")) if started_at else None
    resources = parse_tres(fields.get("AllocTRES") or fields.get("ReqTRES", ""))
    gpus, gpu_type = gpus_in_tres(resources)
    minutes = parse_whole_number(fields.get("TimelimitRaw", ""))
    return PastJob(
        cluster=_text(fields.get("Cluster", "")),
        external_job_id=_text(fields["JobID"]),
        user=_text(fields["User"]),
        account=_text(fields["Account"]),
        name=_text(fields.get(_NAME, "")) or "job",
        state=state,
        reason=reason or (f"exit code {code}" if code else None),
        exit_code=code,
        submitted_at=submitted_at,
        started_at=started_at,
        ended_at=ended_at,
        cpus=_cpus(fields, resources),
        memory_mib=_memory(fields, resources, len(nodes)),
        gpus=min(gpus, _MAX_CPUS),
        gpu_type=None if gpu_type is None else _text(gpu_type),
        nodes=nodes,
        time_limit_seconds=None if minutes is None else min(minutes, 2**31) * 60,
        qos=_text(fields.get("QOS", "")),
        usage=_usage(fields, (ended_at - started_at).total_seconds(), gpus) if started_at else None,
        heliostat_attempt=submitted_attempt(fields.get(_COMMAND, "")),
    )


def _nodes(fields: Mapping[str, str], started_at: datetime | None, ended_at: datetime) -> tuple[str, ...]:
    """Nodes that the job ran on; empty: it never ran. Without NodeList: one unknown node if it took any time."""
    if "NodeList" in fields:
        host_list = fields["NodeList"]
        return () if host_list in _NO_NODES else tuple(_text(name) for name in expand_host_list(host_list))
    return ("unknown",) if started_at is not None and started_at < ended_at else ()


def _exit_code(text: str) -> int | None:
    """`3:0`; after a signal: `0:9`."""
    code, _, signal = text.partition(":")
    if (number := parse_whole_number(signal)) and number < 128:
        return 128 + number
    number = parse_whole_number(code)
    return number if number is not None and number < 2**31 else None


def _cpus(fields: Mapping[str, str], resources: Mapping[str, str]) -> int:
    values = (fields.get("AllocCPUS", ""), resources.get("cpu", ""), fields.get("ReqCPUS", ""))
    return min(next(filter(None, map(parse_whole_number, values)), 1), _MAX_CPUS)


def _memory(fields: Mapping[str, str], resources: Mapping[str, str], nodes: int) -> int:
    """Old versions of Slurm report only the request: `4Gn` per node, `100Mc` per cpu."""
    allocated = parse_size_mib(resources.get("mem", ""))
    requested = fields.get("ReqMem", "")
    if allocated is None and (each := parse_size_mib(requested)) is not None:
        allocated = each * {"n": max(nodes, 1), "c": _cpus(fields, resources)}.get(requested[-1:], 1)
    return max(1, min(round(allocated or 0), _MAX_MIB))


def _usage(fields: Mapping[str, str], seconds: float, gpus: int) -> AttemptUsage:
    cpu = parse_duration_seconds(fields.get("TotalCPU", ""))
    return AttemptUsage(seconds, cpu or None, None, gpus * seconds if gpus else None)


def _with_step(job: PastJob, fields: Mapping[str, str]) -> PastJob:
    """Steps contain the memory usage."""
    if job.usage is None or not fields["JobID"].startswith(f"{job.external_job_id}."):
        return job
    mean, tasks = parse_size_mib(fields.get("AveRSS", "")), parse_whole_number(fields.get("NTasks", ""))
    values = (
        job.usage.memory_mib,
        parse_size_mib(fields.get("MaxRSS", "")),
        mean * tasks if mean and tasks else None,
    )
    largest = max((value for value in values if value), default=None)
    out = job.usage.out_of_memory or fields["State"].startswith("OUT_OF_MEMORY")
    if (largest, out) == (job.usage.memory_mib, job.usage.out_of_memory):
        return job
    return replace(job, usage=replace(job.usage, memory_mib=largest, out_of_memory=out))


def _text(text: str) -> str:
    """One printable line."""
    if not text.isprintable():
        text = "".join(char if char.isprintable() else " " for char in text)
    return text.strip()[:_MAX_TEXT_LENGTH]
