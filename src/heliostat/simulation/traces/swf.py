"""The Standard Workload Format: 18 numbers a line, comments after a semicolon."""

from collections.abc import Iterable, Iterator, Sequence

from heliostat.simulation.traces import values
from heliostat.simulation.traces.records import BadValue, TraceJob, checked

FIELDS = (
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


class Workload:
    """Processors become cpus, times asked for become limits, groups become projects."""

    def __init__(self) -> None:
        self.began_at = 0.0

    def records(self, lines: Iterable[str]) -> Iterator[tuple[int, Sequence[str]]]:
        for line_number, line in enumerate(lines, 1):
            text = line.strip()
            if text.startswith(";"):
                self._learn(text.lstrip("; "))
            elif text:
                yield line_number, text.split()

    def job(self, words: Sequence[str]) -> TraceJob | str:
        """-1 stands for what is not known."""
        if len(words) != len(FIELDS):
            raise BadValue("line", f"has {len(words)} fields instead of {len(FIELDS)}")
        of = dict(zip(FIELDS, (values.number(f, w) for f, w in zip(FIELDS, words, strict=True)), strict=True))
        cpus = of["processors asked"] if of["processors asked"] > 0 else of["processors used"]
        if of["run"] < 0 or cpus <= 0:
            return "never ran"
        memory_kib = max(of["memory asked"], 0.0) * cpus  # the format counts it by processor
        return checked(
            TraceJob(
                submitted_at=self.began_at + of["submit"],
                run_seconds=of["run"],
                limit_seconds=of["time asked"] if of["time asked"] > 0 else None,
                cpus=int(cpus),
                memory_mib=int(memory_kib / _KIB_PER_MIB) or None,
                user=f"user_{int(of['user'])}" if of["user"] >= 0 else "user",
                project=f"group_{int(of['group'])}" if of["group"] >= 0 else "default",
            )
        )

    def _learn(self, comment: str) -> None:
        title, _, value = comment.partition(":")
        if title.strip() == "UnixStartTime" and value.strip().isdecimal():
            self.began_at = float(value)
