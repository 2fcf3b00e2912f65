"""Jobs that wait in Slurm for other jobs of ours, or for a time: what Slurm is told of them. Pure.

Slurm takes a job it does not know for one that has ended well. So a parent is named only while Slurm was seen to
have it a moment ago; until then its child is not submitted.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from heliostat.engines.slurm.handed import Handed
from heliostat.engines.slurm.numbers import ElementNumber
from heliostat.models import Attempt, AttemptId, JobId, Rule

NEVER_SATISFIED = "DependencyNeverSatisfied"
_FRESH_SECONDS = 10.0  # Slurm forgets ended jobs after its MinJobAge, five minutes if nobody has set another
_WORDS = {Rule.OK: "afterok", Rule.ANY: "afterany", Rule.FAILED: "afternotok"}


@dataclass(frozen=True, slots=True)
class Bond:
    """To a parent that Slurm has."""

    number: int
    rule: Rule


Bonds = tuple[Bond, ...]


class Readiness(Enum):
    READY = "ready"
    NOT_YET = "not yet"
    GONE = "gone"  # a parent is no longer what it was: whoever handed the child over is to decide anew


@dataclass(frozen=True, slots=True)
class Around:
    """What is known of other attempts."""

    handed: Mapping[AttemptId, Handed]
    expected: Collection[AttemptId]  # not yet submitted, or their end is not yet recorded
    now: float  # by the monotonic clock

    def readiness(self, attempt: Attempt) -> Readiness:
        """Whether it can be submitted now."""
        found = [self._of_parent(attempt, parent) for parent in attempt.parents]
        if Readiness.GONE in found:
            return Readiness.GONE
        return Readiness.NOT_YET if Readiness.NOT_YET in found else Readiness.READY

    def _of_parent(self, attempt: Attempt, parent: AttemptId) -> Readiness:
        handed = self.handed.get(parent)
        if handed is None:
            return Readiness.NOT_YET if parent in self.expected else Readiness.GONE
        is_there = handed.number is not None and handed.stopped_as is None and handed.former is None
        if not is_there or self.now - handed.seen_at > _FRESH_SECONDS:
            return Readiness.NOT_YET
        if _rule_of(attempt, handed.attempt.job.id) is not Rule.OK and not handed.hears_signals:
            return Readiness.NOT_YET  # one that never began is handed over again
        return Readiness.READY


def bonds_of(attempt: Attempt, handed: Mapping[AttemptId, Handed]) -> Bonds:
    """To each parent, for one that is ready."""
    parents = [handed[parent] for parent in attempt.parents if parent in handed]
    return tuple(
        Bond(one.number, _rule_of(attempt, one.attempt.job.id)) for one in parents if one.number is not None
    )


def index_by_index(bonds: Bonds, index: int | None) -> int | None:
    """The array of Slurm's of which an element waits for the one of its own index, and for nobody else."""
    if len(bonds) != 1 or bonds[0].rule is not Rule.OK or index is None:
        return None
    number = bonds[0].number
    return number.array if isinstance(number, ElementNumber) and number.index == index else None


def dependency_terms(bonds: Bonds) -> Iterator[str]:
    """`afterok:12:13_4`, `afterany:14`: all must be met."""
    for rule, word in _WORDS.items():
        if numbers := [str(bond.number) for bond in bonds if bond.rule is rule]:
            yield ":".join([word, *numbers])


def waiting_options(terms: Sequence[str], begin_at: datetime | None, now: datetime) -> list[str]:
    """For `sbatch`. One that can never start stays until we have said what becomes of it, whatever Slurm does with
    such jobs by default."""
    options = [f"--dependency={','.join(terms)}", "--kill-on-invalid-dep=no"] if terms else []
    if begin_at is not None and begin_at > now:
        options.append(f"--begin=uts{math.ceil(begin_at.timestamp())}")
    return options


def children_by_parent(handed: Collection[Handed]) -> dict[JobId, list[Handed]]:
    """Those that wait in Slurm, by the number of each job they may wait for there."""
    found: defaultdict[JobId, list[Handed]] = defaultdict(list)
    for one in handed:
        if one.waits and one.number is not None:
            for dependency in one.attempt.job.after:
                found[dependency.parent].append(one)
    return found


def _rule_of(attempt: Attempt, parent: JobId) -> Rule:
    return next((one.rule for one in attempt.job.after if one.parent == parent), Rule.OK)
