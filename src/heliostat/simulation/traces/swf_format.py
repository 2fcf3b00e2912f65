"""Traces in the Standard Workload Format (SWF): 18 numbers per line, comments after a semicolon.

Archives and converters append columns of their own, which are ignored.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from heliostat.simulation.traces import value_parsing
from heliostat.simulation.traces.trace import BadValue, TraceJob, validate_trace_job

SWF_FIELDS = (
    "job",
    "submit",
    "wait",
    "run",
    "processors used",
    "cpu time",
    "memory used",
    "processors asked",
    "time asked",
    "memory asked",
    "status",
    "user",
    "group",
    "application",
    "queue",
    "partition",
    "preceding job",
    "think time",
)
_KIB_PER_MIB = 1024


class GpuSource(StrEnum):
    """What the GPUs of a job are read from; the format has no column for them."""

    PROCS = "procs"


class SwfFormat:
    """Processors become cpus (or GPUs), requested times become time limits, groups become projects."""

    def __init__(self, gpus_from: GpuSource | None = None) -> None:
        self._gpus_from = gpus_from
        self.trace_start_seconds = 0.0

    def read_records(self, lines: Iterable[str]) -> Iterator[tuple[int, Sequence[str]]]:
        for line_number, line in enumerate(lines, 1):
            text = line.strip()
            if text.startswith(";"):
                self._read_comment(text.lstrip("; "))
            elif text:
                yield line_number, text.split()

    def parse_job(self, words: Sequence[str]) -> TraceJob | str:
        """-1 means unknown."""
        if len(words) < len(SWF_FIELDS):
            raise BadValue("", f"it has {len(words)} fields, but the format has {len(SWF_FIELDS)}")
        values = {
            field: value_parsing.parse_number(field, word) for field, word in zip(SWF_FIELDS, words, strict=False)
        }
        asked = values["processors asked"]
        processors = int(asked if asked > 0 else values["processors used"])
        if values["run"] < 0 or processors <= 0:
            return "never ran"
        memory_kib = max(values["memory asked"], 0.0) * processors  # the format states it per processor
        return validate_trace_job(
            TraceJob(
                submitted_at=self.trace_start_seconds + values["submit"],
                run_seconds=values["run"],
                limit_seconds=values["time asked"] if values["time asked"] > 0 else None,
                gpus=processors if self._gpus_from is GpuSource.PROCS else 0,
                cpus=None if self._gpus_from is GpuSource.PROCS else processors,
                memory_mib=int(memory_kib / _KIB_PER_MIB) or None,
                user=f"user_{int(values['user'])}" if values["user"] >= 0 else "user",
                project=f"group_{int(values['group'])}" if values["group"] >= 0 else "default",
                id=str(int(values["job"])),
            )
        )

    def _read_comment(self, comment: str) -> None:
        title, _, value = comment.partition(":")
        if title.strip() == "UnixStartTime" and value.strip().isdecimal():
            self.trace_start_seconds = float(value)
