"""Which accounts Slurm should have by our departments, projects and people, and the steps that lead there: pure.

Only what we made is ever changed. An account or a QOS is ours by its description; a user in an account is ours
if we have noted that we put them there.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from heliostat.engines.account_sync import HeliostatAccounts
from heliostat.engines.slurm.accounts.steps import (
    AccountingStep,
    AccountLimits,
    AddAccount,
    AddQos,
    AddUser,
    Association,
    AssociationKey,
    GrantQos,
    ObservedAccounting,
    RemoveUser,
    SetAccount,
    SetDefaultAccount,
    SetQos,
    SetUser,
    is_safe_name,
    ownership_description,
)
from heliostat.models import Quota


@dataclass(frozen=True, slots=True)
class DesiredAccount:
    """A department or a project."""

    kind: str
    name: str
    account: str
    parent: str
    share: int
    limits: AccountLimits


@dataclass(frozen=True, slots=True)
class DesiredUser:
    user: str  # in Unix and in Slurm
    accounts: tuple[str, ...]  # the default one first
    limits: AccountLimits


@dataclass(frozen=True, slots=True)
class DesiredQos:
    """A priority class, which is a QOS in Slurm."""

    name: str
    priority: int
    preempts: tuple[str, ...]
    preempt_mode: str


@dataclass(frozen=True, slots=True)
class DesiredAccounting:
    instance: str
    accounts: tuple[DesiredAccount, ...] = ()  # a parent before what is below it
    users: tuple[DesiredUser, ...] = ()
    qos: tuple[DesiredQos, ...] = ()
    notes: tuple[str, ...] = ()  # what Slurm cannot express, or does not heed as it is set up


@dataclass(frozen=True, slots=True)
class AccountingConfig:
    """How this Slurm is set up, as far as it matters here."""

    cluster: str
    enforced: frozenset[str] = frozenset()
    resets_usage_monthly: bool = False  # usage never fades, and begins anew each month
    uses_fair_share: bool = True
    uses_qos_priority: bool = True
    preempts_by_qos: bool = True


# Jobs are handed over with --no-requeue, so one that must go is ended; its retries are ours.
_CLASSES = (
    DesiredQos("scavenger", 0, (), "cancel"),
    DesiredQos("interactive", 200, ("scavenger",), "cluster"),
    DesiredQos("urgent", 1000, ("scavenger",), "cluster"),
)


def department_account_name(name: str) -> str:
    """No project begins with an underscore, so the two never meet in Slurm's one set of names."""
    return f"_{name}"


def project_account_name(name: str) -> str:
    return name


def build_desired_accounting(
    ours: HeliostatAccounts, conduct: AccountingConfig, instance: str
) -> DesiredAccounting:
    notes = [*_conduct_notes(conduct)]
    groups = [*_groups(ours, conduct, notes)]
    people = [*_people(ours, conduct, notes)]
    classes = tuple(one for one in _CLASSES if one.name != "urgent" or ours.urgent_gpu_hours > 0)
    if ours.urgent_gpu_hours > 0:
        notes.append(
            f"The {ours.urgent_gpu_hours:g} GPU-hours of the class urgent a project has each month: Slurm has"
            " no such limit. To bound it: sacctmgr modify qos urgent set MaxTRESPerAccount=gres/gpu=N"
        )
    return DesiredAccounting(instance, tuple(groups), tuple(people), classes, tuple(notes))


def _groups(ours: HeliostatAccounts, conduct: AccountingConfig, notes: list[str]) -> Iterator[DesiredAccount]:
    for department in ours.departments:
        limits = _limits(department.quota, f"department {department.name}", conduct, notes)
        account = department_account_name(department.name)
        yield DesiredAccount("department", department.name, account, "root", department.share, limits)
    for project in ours.projects:
        limits = _limits(project.quota, f"project {project.name}", conduct, notes)
        above = department_account_name(project.department)
        yield DesiredAccount(
            "project", project.name, project_account_name(project.name), above, project.share, limits
        )


def _people(ours: HeliostatAccounts, conduct: AccountingConfig, notes: list[str]) -> Iterator[DesiredUser]:
    for user in ours.users:
        projects = [membership.project for membership in user.memberships]
        if not user.active or user.unix_user is None or not projects:
            continue
        if not is_safe_name(user.unix_user):
            notes.append(f"{user.name}: Slurm cannot hold the Unix user {user.unix_user!a}.")
            continue
        limits = _limits(user.quota, f"user {user.name}", conduct, notes)
        if limits != AccountLimits() and len(projects) > 1:
            notes.append(
                f"The quota of user {user.name}: Slurm counts it in each of their {len(projects)} projects alone."
            )
        projects.sort(key=lambda name: (name != ours.default_project, name))
        yield DesiredUser(user.unix_user, tuple(map(project_account_name, projects)), limits)


def _limits(quota: Quota, whose: str, conduct: AccountingConfig, notes: list[str]) -> AccountLimits:
    if quota.queued_gpus is not None:
        notes.append(
            f"The {quota.queued_gpus} GPUs in the queue of {whose}: Slurm has no such limit."
            " Heliostat keeps it for jobs submitted through it."
        )
    hours = quota.gpu_hours_per_month
    if hours is not None and not conduct.resets_usage_monthly:
        notes.append(
            f"The {hours} GPU-hours a month of {whose}: this Slurm does not count by the month. It would with"
            " PriorityDecayHalfLife=0 and PriorityUsageResetPeriod=MONTHLY in slurm.conf."
        )
        hours = None
    return AccountLimits(quota.running_gpus, None if hours is None else hours * 60)


def _conduct_notes(conduct: AccountingConfig) -> Iterable[str]:
    missing = [word for word in ("associations", "limits", "qos") if word not in conduct.enforced]
    if missing:
        yield (
            f"Slurm does not heed {', '.join(missing)} as it is set up:"
            f" AccountingStorageEnforce={','.join(sorted(conduct.enforced | set(missing)))} in slurm.conf."
        )
    if not conduct.uses_fair_share:
        yield (
            "Slurm does not weigh shares as it is set up: PriorityType=priority/multifactor and"
            " PriorityWeightFairshare=100000 in slurm.conf."
        )
    if not conduct.uses_qos_priority:
        yield "Slurm does not weigh classes as it is set up: PriorityWeightQOS=100000 in slurm.conf."
    if not conduct.preempts_by_qos:
        yield (
            "Slurm sends no scavenger job away as it is set up: PreemptType=preempt/qos and"
            " PreemptMode=CANCEL in slurm.conf."
        )


@dataclass(frozen=True, slots=True)
class AccountingPlan:
    cluster: str
    steps: tuple[AccountingStep, ...]
    unmanaged: tuple[str, ...]  # what is there and not ours
    unsupported: tuple[str, ...]


def plan_accounting(
    wanted: DesiredAccounting, found: ObservedAccounting, made: Collection[AssociationKey]
) -> AccountingPlan:
    """`made`: the users in accounts that we have put there. Once its steps are done, there are no further ones."""
    draft = _Draft(wanted, found, frozenset(made))
    draft.classes()
    for group in wanted.accounts:
        draft.group(group)
    for person in wanted.users:
        draft.person(person)
    draft.removals()
    notes = (*wanted.notes, *_notes(draft.found))
    return AccountingPlan(found.cluster, tuple(draft.steps), tuple(draft.unmanaged), notes)


def _notes(found: ObservedAccounting) -> Iterator[str]:
    normal, least = found.qos.get("normal"), found.qos.get("scavenger")
    if normal is not None and least is not None and normal.priority <= least.priority:
        yield (
            "Slurm's QOS normal, which is not ours, is not above scavenger: sacctmgr modify qos where name=normal"
            f" set priority={least.priority + 100}"
        )


def managed_memberships_after(step: AccountingStep, made: frozenset[AssociationKey]) -> frozenset[AssociationKey]:
    match step:
        case AddUser(account, user):
            return made | {(account, user)}
        case RemoveUser(account, user):
            return made - {(account, user)}
    return made


@dataclass(slots=True)
class _Draft:
    wanted: DesiredAccounting
    found: ObservedAccounting  # as it is after the steps so far
    made: frozenset[AssociationKey]
    steps: list[AccountingStep] = field(default_factory=list)
    unmanaged: list[str] = field(default_factory=list)

    def do(self, step: AccountingStep) -> None:
        self.steps.append(step)
        self.found = step.apply_to(self.found)
        self.made = managed_memberships_after(step, self.made)

    def classes(self) -> None:
        for one in self.wanted.qos:
            description = ownership_description(self.wanted.instance, "class", one.name)
            there = self.found.qos.get(one.name)
            if there is None:
                self.do(AddQos(one.name, description, one.priority, one.preempt_mode))
            elif there.description != description:
                self.unmanaged.append(
                    f"The QOS {one.name} was not made by this Heliostat; it and who may use it stay."
                )
        ours = self._our_qos()
        for one in self.wanted.qos:
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

    def group(self, group: DesiredAccount) -> None:
        if group.account in self.found.descriptions and not self._is_ours(group.account):
            owner = ownership_description(self.wanted.instance, group.kind, group.name)
            self.unmanaged.append(
                f"The account {group.account} was not made by this Heliostat; it stays as it is,"
                f" and serves the {group.kind} {group.name}. To hand it over: sacctmgr modify account where"
                f" name={group.account} set description={owner}"
            )
            return
        if group.parent != "root" and not self._is_ours(group.parent):
            self.unmanaged.append(
                f"The {group.kind} {group.name} gets no account: {group.parent}, where it belongs, is not ours."
            )
            return
        there = self.found.associations.get((group.account, ""))
        if there is None:
            description = ownership_description(self.wanted.instance, group.kind, group.name)
            self.do(AddAccount(group.account, group.parent, description, group.share, group.limits))
        else:
            after = replace(there, parent=group.parent, share=group.share, limits=group.limits)
            if after != there:
                self.do(SetAccount(group.account, there, after))
        self._grant(group.account, "")

    def person(self, person: DesiredUser) -> None:
        for account in person.accounts:
            there = self.found.associations.get((account, person.user))
            if there is not None:
                self._keep(account, person, there)
            elif self._is_ours(account):
                self.do(AddUser(account, person.user, person.limits))
                self._grant(account, person.user)
            elif account in self.found.descriptions:
                self.unmanaged.append(
                    f"{person.user} is not in the account {account}, which is not ours:"
                    f" sacctmgr add user {person.user} account={account}"
                )
        self._default(person)

    def removals(self) -> None:
        """Last: Slurm refuses to remove who has jobs there, and then all else is done."""
        kept = {(account, person.user) for person in self.wanted.users for account in person.accounts}
        for place in sorted(self.made - kept):
            if place in self.found.associations and self._is_ours(place[0]):
                self.do(RemoveUser(*place))

    def _keep(self, account: str, person: DesiredUser, there: Association) -> None:
        if (account, person.user) not in self.made or not self._is_ours(account):
            return
        after = replace(there, share=1, limits=person.limits)
        if after != there:
            self.do(SetUser(account, person.user, there, after))
        self._grant(account, person.user)

    def _default(self, person: DesiredUser) -> None:
        """Theirs, unless it is a place we have given them, or they have none."""
        now = self.found.default_accounts.get(person.user)
        if now is not None and (now, person.user) not in self.made:
            return
        wish = next((one for one in person.accounts if (one, person.user) in self.found.associations), None)
        if wish is not None and wish != now:
            self.do(SetDefaultAccount(wish, person.user))

    def _grant(self, account: str, user: str) -> None:
        missing = tuple(sorted(set(self._our_qos()) - self.found.associations[account, user].qos))
        if missing:
            self.do(GrantQos(account, user, missing))

    def _our_qos(self) -> list[str]:
        return [one.name for one in self.wanted.qos if self._is_our_qos(one.name)]

    def _is_our_qos(self, name: str) -> bool:
        there = self.found.qos.get(name)
        return there is not None and there.description == ownership_description(
            self.wanted.instance, "class", name
        )

    def _is_ours(self, account: str) -> bool:
        return self.found.descriptions.get(account) in set(self._marks(account))

    def _marks(self, account: str) -> Iterator[str]:
        for kind, name in (("project", account), ("department", account.removeprefix("_"))):
            yield ownership_description(self.wanted.instance, kind, name)
