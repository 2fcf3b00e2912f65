"""Whom a job waits for and who waits for it, as links."""

from collections.abc import Iterable
from dataclasses import dataclass

from heliostat.models import Job, Rule, User
from heliostat.services.jobs.story import Family
from heliostat.services.rights import may_inspect

_SHOWN = 20
_RULES = {
    Rule.ANY: "however it ends",
    Rule.FAILED: "if it fails",
    Rule.BUILT: "builds its environment",
    Rule.DECIDED: "as their workflow says",
}


@dataclass(frozen=True, slots=True)
class Relative:
    id: int
    state: str
    rule: str  # empty: it has to complete
    href: str  # empty: not for this person


@dataclass(frozen=True, slots=True)
class Relatives:
    title: str
    shown: tuple[Relative, ...]
    more: int


def relatives(job: Job, family: Family, user: User) -> tuple[Relatives, ...]:
    """What there is: parents, then children."""
    title = "Waits for" if job.parents_left and not job.is_over else "Waited for"
    groups = (
        (title, family.parents, family.parent_count),
        ("Waiting for it", family.children, family.child_count),
    )
    return tuple(_group(title, found, count, user) for title, found, count in groups if count)


def _group(title: str, found: Iterable[tuple[Job, Rule]], count: int, user: User) -> Relatives:
    shown = tuple(_relative(job, rule, user) for job, rule in list(found)[:_SHOWN])
    return Relatives(title, shown, count - len(shown))


def _relative(job: Job, rule: Rule, user: User) -> Relative:
    href = f"/jobs/{job.id}" if may_inspect(user, job) else ""
    return Relative(job.id, job.state.value, _RULES.get(rule, ""), href)
