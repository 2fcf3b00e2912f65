"""What Slurm's accounts should be, by our departments, projects and people; what Slurm cannot express: pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from heliostat.engines.accounts import OurAccounts
from heliostat.engines.slurm.accounts import Limits, is_safe
from heliostat.models import Quota


@dataclass(frozen=True, slots=True)
class Group:
    """A department or a project."""

    kind: str
    name: str
    account: str
    parent: str
    share: int
    limits: Limits


@dataclass(frozen=True, slots=True)
class Person:
    user: str  # in Unix and in Slurm
    accounts: tuple[str, ...]  # the default one first
    limits: Limits


@dataclass(frozen=True, slots=True)
class Class:
    """A priority class, which is a QOS in Slurm."""

    name: str
    priority: int
    preempts: tuple[str, ...]
    preempt_mode: str


@dataclass(frozen=True, slots=True)
class Wanted:
    instance: str
    groups: tuple[Group, ...] = ()  # a parent before what is below it
    people: tuple[Person, ...] = ()
    classes: tuple[Class, ...] = ()
    notes: tuple[str, ...] = ()  # what Slurm cannot express, or does not heed as it is set up


@dataclass(frozen=True, slots=True)
class Conduct:
    """How this Slurm is set up, as far as it matters here."""

    cluster: str
    enforces: frozenset[str] = frozenset()
    counts_by_month: bool = False  # usage never fades, and begins anew each month
    weighs_shares: bool = True
    weighs_classes: bool = True
    preempts_by_qos: bool = True


# Jobs are handed over with --no-requeue, so one that must go is ended; its retries are ours.
_CLASSES = (
    Class("scavenger", 0, (), "cancel"),
    Class("interactive", 200, ("scavenger",), "cluster"),
    Class("urgent", 1000, ("scavenger",), "cluster"),
)


def department_account(name: str) -> str:
    """No project begins with an underscore, so the two never meet in Slurm's one set of names."""
    return f"_{name}"


def project_account(name: str) -> str:
    return name


def wanted_accounts(ours: OurAccounts, conduct: Conduct, instance: str) -> Wanted:
    notes = [*_conduct_notes(conduct)]
    groups = [*_groups(ours, conduct, notes)]
    people = [*_people(ours, conduct, notes)]
    classes = tuple(one for one in _CLASSES if one.name != "urgent" or ours.urgent_gpu_hours > 0)
    if ours.urgent_gpu_hours > 0:
        notes.append(
            f"The {ours.urgent_gpu_hours:g} GPU-hours of the class urgent a project has each month: Slurm has"
            " no such limit. To bound it: sacctmgr modify qos urgent set MaxTRESPerAccount=gres/gpu=N"
        )
    return Wanted(instance, tuple(groups), tuple(people), classes, tuple(notes))


def _groups(ours: OurAccounts, conduct: Conduct, notes: list[str]) -> Iterator[Group]:
    for department in ours.departments:
        limits = _limits(department.quota, f"department {department.name}", conduct, notes)
        account = department_account(department.name)
        yield Group("department", department.name, account, "root", department.share, limits)
    for project in ours.projects:
        limits = _limits(project.quota, f"project {project.name}", conduct, notes)
        above = department_account(project.department)
        yield Group("project", project.name, project_account(project.name), above, project.share, limits)


def _people(ours: OurAccounts, conduct: Conduct, notes: list[str]) -> Iterator[Person]:
    for user in ours.users:
        projects = [membership.project for membership in user.memberships]
        if not user.active or user.unix_user is None or not projects:
            continue
        if not is_safe(user.unix_user):
            notes.append(f"{user.name}: Slurm cannot hold the Unix user {user.unix_user!a}.")
            continue
        limits = _limits(user.quota, f"user {user.name}", conduct, notes)
        if limits != Limits() and len(projects) > 1:
            notes.append(
                f"The quota of user {user.name}: Slurm counts it in each of their {len(projects)} projects alone."
            )
        projects.sort(key=lambda name: (name != ours.default_project, name))
        yield Person(user.unix_user, tuple(map(project_account, projects)), limits)


def _limits(quota: Quota, whose: str, conduct: Conduct, notes: list[str]) -> Limits:
    if quota.queued_gpus is not None:
        notes.append(
            f"The {quota.queued_gpus} GPUs in the queue of {whose}: Slurm has no such limit."
            " Heliostat keeps it for jobs submitted through it."
        )
    hours = quota.gpu_hours_per_month
    if hours is not None and not conduct.counts_by_month:
        notes.append(
            f"The {hours} GPU-hours a month of {whose}: this Slurm does not count by the month. It would with"
            " PriorityDecayHalfLife=0 and PriorityUsageResetPeriod=MONTHLY in slurm.conf."
        )
        hours = None
    return Limits(quota.running_gpus, None if hours is None else hours * 60)


def _conduct_notes(conduct: Conduct) -> Iterable[str]:
    missing = [word for word in ("associations", "limits", "qos") if word not in conduct.enforces]
    if missing:
        yield (
            f"Slurm does not heed {', '.join(missing)} as it is set up:"
            f" AccountingStorageEnforce={','.join(sorted(conduct.enforces | set(missing)))} in slurm.conf."
        )
    if not conduct.weighs_shares:
        yield (
            "Slurm does not weigh shares as it is set up: PriorityType=priority/multifactor and"
            " PriorityWeightFairshare=100000 in slurm.conf."
        )
    if not conduct.weighs_classes:
        yield "Slurm does not weigh classes as it is set up: PriorityWeightQOS=100000 in slurm.conf."
    if not conduct.preempts_by_qos:
        yield (
            "Slurm sends no scavenger job away as it is set up: PreemptType=preempt/qos and"
            " PreemptMode=CANCEL in slurm.conf."
        )
