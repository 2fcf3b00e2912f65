"""Efficiency reports: the resources that a job used, compared with those that it requested, and what to change."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from heliostat.models import (
    ACTIVE_STATES,
    TERMINAL_STATES,
    AttemptUsage,
    Job,
    JobId,
    SeriesStatistics,
    UsageSummary,
)
from heliostat.services.efficiency_facts import JobFacts
from heliostat.services.efficiency_rules import RULES, ChangeValue, EfficiencyRule

MIN_RUN_SECONDS = 120.0  # shorter jobs are not assessed
_NO_DATA = "no usage data"
Suggestion = Callable[[JobFacts], ChangeValue | None]
_OPTIONS = {"time_limit": "--time"}  # others are named as their field


@dataclass(frozen=True, slots=True)
class RequestedResources:
    """The sum over all tasks of a job."""

    cpus: int
    memory_mib: int
    gpus: float

    @classmethod
    def from_job(cls, job: Job) -> "RequestedResources":
        tasks, per_task = job.placement.tasks, job.resources
        return cls(per_task.cpus * tasks, per_task.memory_mib * tasks, per_task.gpus * tasks)


@dataclass(frozen=True, slots=True)
class EfficiencyFinding:
    """A rule that applies to a job."""

    rule: str
    sentence: str
    guide: str  # where the documentation says more


@dataclass(frozen=True, slots=True)
class EfficiencyReport:
    """The sentences have the subject "the job" and do not end with a full stop."""

    sentences: tuple[str, ...]
    judged: bool = False  # False: too little data
    wasteful: bool = False  # a requested resource was hardly used
    gpus_used: int | None = None  # None: no GPUs, or no data about them
    findings: tuple[EfficiencyFinding, ...] = ()
    change: Mapping[str, ChangeValue] = field(default_factory=dict)  # fields of a job, for its next run
    asks_for_more: bool = False  # the change contains a larger amount

    @property
    def text(self) -> str:
        return "; ".join(self.sentences)

    @property
    def summary(self) -> str:
        """Whole sentences about a judged job; empty: it was not judged."""
        if not self.judged:
            return ""
        text = self.text[:1].upper() + self.text[1:] + "."
        return f"{text} {self.advice}." if self.change else text

    @property
    def options(self) -> str:
        """The change on the command line: `--gpus 1 --memory 12G`."""
        return format_options(self.change)

    @property
    def advice(self) -> str:
        """A sentence without a full stop; empty: no change."""
        return f"`{self.options}` {self.verdict}" if self.change else ""

    @property
    def verdict(self) -> str:
        """What the change is."""
        return "is better for the next run" if self.asks_for_more else "would have been enough"

    def rerun_command(self, job_id: JobId) -> str:
        """Submits the job again with the change; empty: no change."""
        changes = [f"--set {name}={value}" for name, value in self.change.items()]
        return " ".join(["helio rerun", str(job_id), *changes]) if changes else ""

    def without_change(self) -> "EfficiencyReport":
        return replace(self, change={}, asks_for_more=False)


def format_options(change: Mapping[str, ChangeValue]) -> str:
    return " ".join(f"{_OPTIONS.get(name, f'--{name}')} {value}" for name, value in change.items())


def assess_efficiency(facts: JobFacts) -> EfficiencyReport:
    """By the first rule of each resource that applies. Only batch jobs are judged: the usage of a session depends
    on its user, that of a service on its visitors."""
    rules, too_little_data = applicable_rules(facts), _too_little_data(facts)
    if too_little_data and not rules:
        return EfficiencyReport((too_little_data,))
    sentences = [rule.sentence.format_map(facts.texts) for rule in rules]
    is_wasteful, used = any(rule.is_waste for rule in rules), ", ".join(_used_amounts(facts))
    if used and not is_wasteful and not too_little_data:
        sentences.insert(0, f"used {used}")
    change, asks_for_more = suggest_change(facts, rules)
    return EfficiencyReport(
        tuple(sentences) or (_NO_DATA,),
        judged=bool(sentences) and _may_be_judged(facts),
        wasteful=is_wasteful,
        gpus_used=facts.gpus_used,
        findings=tuple(_finding(rule, facts) for rule in rules),
        change=change,
        asks_for_more=asks_for_more,
    )


def _too_little_data(facts: JobFacts) -> str:
    """Why usage says nothing about the job; empty: there is enough."""
    if facts.run_seconds <= 0:
        return "has not run yet"
    if facts.used.sampled_seconds <= 0:
        return _NO_DATA
    if facts.run_seconds < MIN_RUN_SECONDS:
        return f"ran less than {MIN_RUN_SECONDS:.0f} s, too short for a report"
    return ""


def _may_be_judged(facts: JobFacts) -> bool:
    """Not while it waits to run again: its usage so far is that of an interrupted run."""
    return facts.kind == "batch" and facts.state in ACTIVE_STATES | TERMINAL_STATES


def applicable_rules(facts: JobFacts) -> tuple[EfficiencyRule, ...]:
    """The first of each resource."""
    first: dict[str, EfficiencyRule] = {}
    is_short = bool(_too_little_data(facts))
    for rule in RULES if _may_be_judged(facts) else ():
        if rule.resource not in first and (rule.is_for_short_runs or not is_short) and rule.applies(facts):
            first[rule.resource] = rule
    return tuple(first.values())


def suggest_change(facts: JobFacts, rules: Iterable[EfficiencyRule]) -> tuple[dict[str, ChangeValue], bool]:
    """Fields of a job, and whether one of them is larger than before."""
    more = _values(facts, [rule.more for rule in rules]) if facts.state in TERMINAL_STATES else {}
    less = _values(facts, [rule.less for rule in rules]) if facts.is_representative else {}
    return less | more, bool(more)


def _values(facts: JobFacts, changes: Iterable[Mapping[str, Suggestion]]) -> dict[str, ChangeValue]:
    found = {name: suggest(facts) for change in changes for name, suggest in change.items()}
    return {name: value for name, value in found.items() if value is not None}


def _finding(rule: EfficiencyRule, facts: JobFacts) -> EfficiencyFinding:
    return EfficiencyFinding(rule.id, rule.sentence.format_map(facts.texts), f"docs/researchers.md#{rule.guide}")


def _used_amounts(facts: JobFacts) -> Iterator[str]:
    texts = facts.texts
    if facts.gpu_percent is not None:
        yield f"{texts['its_gpus']} {texts['gpu_load']} of the time"
    if facts.cpus_used is not None:
        yield f"{texts['cpus_used']} of {texts['cpus']}"
    if facts.memory_used is not None:
        yield f"{texts['memory_used']} of {texts['memory']} of memory"


def total_attempt_usage(used: Sequence[AttemptUsage]) -> AttemptUsage | None:
    """Over all attempts: the sum of times, the maximum of memory; None: no data."""
    if not used:
        return None
    return AttemptUsage(
        sum(attempt.elapsed_seconds for attempt in used),
        _sum(attempt.cpu_seconds for attempt in used),
        max((attempt.memory_mib for attempt in used if attempt.memory_mib is not None), default=None),
        _sum(attempt.gpu_seconds for attempt in used),
        any(attempt.out_of_memory for attempt in used),
    )


def merge_accounting_usage(sampled: UsageSummary, accounting_usage: AttemptUsage | None) -> UsageSummary:
    """Samples can miss a peak of memory; the accounting does not, but it has no peak of cpus."""
    if accounting_usage is None or accounting_usage.elapsed_seconds <= 0:
        return sampled
    cpus, memory = sampled.cpus, sampled.memory_mib
    if accounting_usage.cpu_seconds is not None:
        cpus = SeriesStatistics(
            round(accounting_usage.cpu_seconds / accounting_usage.elapsed_seconds, 3), cpus.peak, cpus.last
        )
    if accounting_usage.memory_mib is not None:
        memory = SeriesStatistics(memory.mean, max(accounting_usage.memory_mib, memory.peak or 0.0), memory.last)
    seconds = max(sampled.sampled_seconds, accounting_usage.elapsed_seconds)
    return replace(sampled, sampled_seconds=seconds, cpus=cpus, memory_mib=memory)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
