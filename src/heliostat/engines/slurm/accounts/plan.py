"""Which accounts Slurm should have by our departments, projects and people, and the steps that lead there: pure.

Only what we made is ever changed. An account or a QOS is ours by its description; a user in an account is ours
if we have noted that we put them there.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from heliostat.engines.accounts import OurAccounts
from heliostat.engines.slurm.accounts.steps import (
    AddAccount,
    AddQos,
    AddUser,
    Association,
    Found,
    GrantQos,
    Limits,
    Place,
    RemoveUser,
    SetAccount,
    SetDefault,
    SetQos,
    SetUser,
    Step,
    is_safe,
    mark,
)
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


@dataclass(frozen=True, slots=True)
class Plan:
    cluster: str
    steps: tuple[Step, ...]
    left_alone: tuple[str, ...]  # what is there and not ours
    not_expressed: tuple[str, ...]


def plan_accounts(wanted: Wanted, found: Found, made: Collection[Place]) -> Plan:
    """`made`: the users in accounts that we have put there. Once its steps are done, there are no further ones."""
    draft = _Draft(wanted, found, frozenset(made))
    draft.classes()
    for group in wanted.groups:
        draft.group(group)
    for person in wanted.people:
        draft.person(person)
    draft.removals()
    notes = (*wanted.notes, *_notes(draft.found))
    return Plan(found.cluster, tuple(draft.steps), tuple(draft.left_alone), notes)


def _notes(found: Found) -> Iterator[str]:
    normal, least = found.qos.get("normal"), found.qos.get("scavenger")
    if normal is not None and least is not None and normal.priority <= least.priority:
        yield (
            "Slurm's QOS normal, which is not ours, is not above scavenger: sacctmgr modify qos where name=normal"
            f" set priority={least.priority + 100}"
        )


def made_after(step: Step, made: frozenset[Place]) -> frozenset[Place]:
    match step:
        case AddUser(account, user):
            return made | {(account, user)}
        case RemoveUser(account, user):
            return made - {(account, user)}
    return made


@dataclass(slots=True)
class _Draft:
    wanted: Wanted
    found: Found  # as it is after the steps so far
    made: frozenset[Place]
    steps: list[Step] = field(default_factory=list)
    left_alone: list[str] = field(default_factory=list)

    def do(self, step: Step) -> None:
        self.steps.append(step)
        self.found = step.applied(self.found)
        self.made = made_after(step, self.made)

    def classes(self) -> None:
        for one in self.wanted.classes:
            description = mark(self.wanted.instance, "class", one.name)
            there = self.found.qos.get(one.name)
            if there is None:
                self.do(AddQos(one.name, description, one.priority, one.preempt_mode))
            elif there.description != description:
                self.left_alone.append(
                    f"The QOS {one.name} was not made by this Heliostat; it and who may use it stay."
                )
        ours = self._our_qos()
        for one in self.wanted.classes:
            if one.name not in ours:
                continue
            there = self.found.qos[one.name]
            preempts = tuple(name for name in one.preempts if name in ours)
            if (there.priority, there.preempts, there.preempt_mode) != (
                one.priority,
                frozenset(preempts),
                one.preempt_mode,
            ):
                self.do(SetQos(one.name, one.priority, preempts, one.preempt_mode))

    def group(self, group: Group) -> None:
        if group.account in self.found.descriptions and not self._is_ours(group.account):
            self.left_alone.append(
                f"The account {group.account} was not made by this Heliostat; it stays as it is,"
                f" and serves the {group.kind} {group.name}. To hand it over: sacctmgr modify account where"
                f" name={group.account} set description={mark(self.wanted.instance, group.kind, group.name)}"
            )
            return
        if group.parent != "root" and not self._is_ours(group.parent):
            self.left_alone.append(
                f"The {group.kind} {group.name} gets no account: {group.parent}, where it belongs, is not ours."
            )
            return
        there = self.found.associations.get((group.account, ""))
        if there is None:
            description = mark(self.wanted.instance, group.kind, group.name)
            self.do(AddAccount(group.account, group.parent, description, group.share, group.limits))
        else:
            after = replace(there, parent=group.parent, share=group.share, limits=group.limits)
            if after != there:
                self.do(SetAccount(group.account, there, after))
        self._grant(group.account, "")

    def person(self, person: Person) -> None:
        for account in person.accounts:
            there = self.found.associations.get((account, person.user))
            if there is not None:
                self._keep(account, person, there)
            elif self._is_ours(account):
                self.do(AddUser(account, person.user, person.limits))
                self._grant(account, person.user)
            elif account in self.found.descriptions:
                self.left_alone.append(
                    f"{person.user} is not in the account {account}, which is not ours:"
                    f" sacctmgr add user {person.user} account={account}"
                )
        self._default(person)

    def removals(self) -> None:
        """Last: Slurm refuses to remove who has jobs there, and then all else is done."""
        kept = {(account, person.user) for person in self.wanted.people for account in person.accounts}
        for place in sorted(self.made - kept):
            if place in self.found.associations and self._is_ours(place[0]):
                self.do(RemoveUser(*place))

    def _keep(self, account: str, person: Person, there: Association) -> None:
        if (account, person.user) not in self.made or not self._is_ours(account):
            return
        after = replace(there, share=1, limits=person.limits)
        if after != there:
            self.do(SetUser(account, person.user, there, after))
        self._grant(account, person.user)

    def _default(self, person: Person) -> None:
        """Theirs, unless it is a place we have given them, or they have none."""
        now = self.found.defaults.get(person.user)
        if now is not None and (now, person.user) not in self.made:
            return
        wish = next((one for one in person.accounts if (one, person.user) in self.found.associations), None)
        if wish is not None and wish != now:
            self.do(SetDefault(wish, person.user))

    def _grant(self, account: str, user: str) -> None:
        missing = tuple(sorted(set(self._our_qos()) - self.found.associations[account, user].qos))
        if missing:
            self.do(GrantQos(account, user, missing))

    def _our_qos(self) -> list[str]:
        return [one.name for one in self.wanted.classes if self._is_our_qos(one.name)]

    def _is_our_qos(self, name: str) -> bool:
        there = self.found.qos.get(name)
        return there is not None and there.description == mark(self.wanted.instance, "class", name)

    def _is_ours(self, account: str) -> bool:
        return self.found.descriptions.get(account) in set(self._marks(account))

    def _marks(self, account: str) -> Iterator[str]:
        for kind, name in (("project", account), ("department", account.removeprefix("_"))):
            yield mark(self.wanted.instance, kind, name)
