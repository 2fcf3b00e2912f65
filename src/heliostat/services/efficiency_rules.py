"""The efficiency rules: when a job used its resources badly, the sentence, and the change for its next run. Pure.

Each rule has cases in tests/cases/efficiency.yaml.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from heliostat.models import JobState
from heliostat.services.efficiency_facts import (
    JobFacts,
    enough_cpus,
    enough_gpu_fraction,
    enough_gpus,
    enough_memory,
    enough_time,
    more_cpus,
    more_memory,
    more_time,
)

ChangeValue = int | float | str
LOW_UTILISATION_PERCENT = 30.0  # GPUs with less utilisation mostly wait for something
_LITTLE = 0.5  # of the requested amount
_ALMOST_ALL = 0.95
_BUSY_CPUS = 0.85  # mean: the CPUs limit the job
_SMALL_MIB, _SMALL_CPUS = 4096.0, 2.0  # unused amounts below these are not reported
_SHORT_FRACTION, _SMALL_SECONDS = 0.25, 3600.0  # of the time limit; unused time below this is not reported


@dataclass(frozen=True, slots=True)
class EfficiencyRule:
    """Of the rules for one resource, only the first that applies is reported."""

    id: str
    resource: str
    applies: Callable[[JobFacts], bool]
    sentence: str  # without its subject "the job" and without a full stop, filled with `JobFacts.texts`
    guide: str  # section of docs/researchers.md
    less: Mapping[str, Callable[[JobFacts], ChangeValue | None]] = field(default_factory=dict)
    """Fields of a job for which a smaller value would have been enough."""
    more: Mapping[str, Callable[[JobFacts], ChangeValue | None]] = field(default_factory=dict)
    """Fields of a job that need a larger value."""
    is_waste: bool = True
    is_for_short_runs: bool = False  # also applies before usage is known
    is_hint: bool = False  # also shown when a job like it is submitted


def _has_unused_gpus(facts: JobFacts) -> bool:
    return _has_own_gpus(facts) and facts.gpus_used is not None and facts.gpus_used < facts.gpu_count


def _has_waiting_gpus(facts: JobFacts) -> bool:
    percent = facts.gpu_percent
    return _has_own_gpus(facts) and percent is not None and percent < LOW_UTILISATION_PERCENT


def _has_own_gpus(facts: JobFacts) -> bool:
    """The utilisation of a shared GPU includes the work of other jobs."""
    return facts.requested.gpus >= 1


def _has_saturated_cpus(facts: JobFacts) -> bool:
    return _cpu_fraction(facts) >= _BUSY_CPUS


def _cpu_fraction(facts: JobFacts) -> float:
    mean = facts.used.cpus.mean
    return _LITTLE if mean is None else mean / facts.cpus


def _uses_little_memory(facts: JobFacts) -> bool:
    used = facts.memory_used
    return used is not None and used < facts.memory_mib * _LITTLE and facts.memory_mib - used > _SMALL_MIB


def _uses_almost_all_memory(facts: JobFacts) -> bool:
    return facts.memory_used is not None and facts.memory_used >= facts.memory_mib * _ALMOST_ALL


def _uses_few_cpus(facts: JobFacts) -> bool:
    used = facts.cpus_used
    return used is not None and used < facts.cpus * _LITTLE and facts.cpus - used >= _SMALL_CPUS


def _has_loose_time_limit(facts: JobFacts) -> bool:
    """Not after several attempts: the last one may have continued from a checkpoint."""
    limit, seconds = facts.time_limit_seconds, facts.run_seconds
    if facts.state is not JobState.COMPLETED or facts.attempts > 1 or limit is None:
        return False
    return seconds < limit * _SHORT_FRACTION and limit - seconds > _SMALL_SECONDS


RULES = (
    EfficiencyRule(
        "unused-gpus",
        "gpus",
        _has_unused_gpus,
        "used {at_most}{gpus_used} of {gpus}",
        "unused-gpus",
        less={"gpus": enough_gpus},
        is_hint=True,
    ),
    EfficiencyRule(
        "slow-data-loading",
        "gpus",
        lambda facts: _has_waiting_gpus(facts) and _has_saturated_cpus(facts),
        "{gpus_were} busy only {gpu_load} of the time and its {cpus} {cpu_load}: more CPUs would load data faster",
        "gpus-that-wait",
        more={"cpus": more_cpus},
    ),
    EfficiencyRule(
        "small-gpu-load",
        "gpus",
        lambda facts: _has_waiting_gpus(facts) and enough_gpu_fraction(facts) is not None,
        "{gpus_were} busy only {gpu_load} of the time, and at most {gpu_memory} of the GPU memory was used",
        "fractions-of-a-gpu",
        less={"gpus": enough_gpu_fraction},
    ),
    EfficiencyRule(
        "small-batches",
        "gpus",
        lambda facts: _has_waiting_gpus(facts) and _cpu_fraction(facts) < _LITTLE,
        "{gpus_were} busy only {gpu_load} of the time and its {cpus} {cpu_load}: small batches or slow files",
        "gpus-that-wait",
    ),
    EfficiencyRule(
        "waiting-gpus",
        "gpus",
        _has_waiting_gpus,
        "{gpus_were} busy only {gpu_load} of the time",
        "gpus-that-wait",
    ),
    EfficiencyRule(
        "out-of-memory",
        "memory",
        lambda facts: facts.out_of_memory,
        "needed more than {memory} of memory",
        "memory-and-cpus",
        more={"memory": more_memory},
        is_waste=False,
        is_for_short_runs=True,
    ),
    EfficiencyRule(
        "memory-almost-full",
        "memory",
        _uses_almost_all_memory,
        "almost ran out of memory",
        "memory-and-cpus",
        more={"memory": more_memory},
        is_waste=False,
    ),
    EfficiencyRule(
        "unused-memory",
        "memory",
        _uses_little_memory,
        "used at most {memory_used} of {memory} of memory",
        "memory-and-cpus",
        less={"memory": enough_memory},
        is_hint=True,
    ),
    EfficiencyRule(
        "unused-cpus",
        "cpus",
        _uses_few_cpus,
        "used {at_most}{cpus_used} of {cpus}",
        "memory-and-cpus",
        less={"cpus": enough_cpus},
        is_hint=True,
    ),
    EfficiencyRule(
        "time-limit-reached",
        "time",
        lambda facts: facts.state is JobState.TIMED_OUT,
        "reached its time limit of {time_limit}",
        "time-limits",
        more={"time_limit": more_time},
        is_waste=False,
    ),
    EfficiencyRule(
        "loose-time-limit",
        "time",
        _has_loose_time_limit,
        "took {at_most}{run_time} of a time limit of {time_limit}",
        "time-limits",
        less={"time_limit": enough_time},
        is_waste=False,
        is_hint=True,
    ),
)
