"""Plan of Slurm's accounting: desired accounts, users and QOS, and the steps that lead there. Pure.

Only what Heliostat created is ever changed. An account or a QOS is recognized by its description; a user in an
account by the database's record that Heliostat added them.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from statistics import mean

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
from heliostat.models.amounts import format_percent


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
    accounts: tuple[DesiredAccount, ...] = ()  # parents before their children
    users: tuple[DesiredUser, ...] = ()
    qos: tuple[DesiredQos, ...] = ()
    notes: tuple[str, ...] = ()  # what Slurm does not support, or not with its current configuration


@dataclass(frozen=True, slots=True)
class AccountingConfig:
    """The relevant part of Slurm's configuration."""

    cluster: str
    enforced: frozenset[str] = frozenset()
    resets_usage_monthly: bool = False  # usage does not decay and is reset each month
    uses_fair_share: bool = True
    uses_qos_priority: bool = True
    preempts_by_qos: bool = True


# Jobs are submitted with --no-requeue: Slurm ends a preempted job, and Heliostat retries it.
_FAR_LARGER = 10  # times as large
_MAX_LISTED = 3
_CLASSES = (
    DesiredQos("scavenger", 0, (), "cancel"),
    DesiredQos("interactive", 200, ("scavenger",), "cluster"),
    DesiredQos("urgent", 1000, ("scavenger",), "cluster"),
)


def department_account_name(name: str) -> str:
    """Project names never begin with an underscore, so the two cannot collide in Slurm."""
    return f"_{name}"


def project_account_name(name: str) -> str:
    return name


def build_desired_accounting(
    ours: HeliostatAccounts, config: AccountingConfig, instance: str
) -> DesiredAccounting:
    notes = [*_config_notes(config)]
    groups = [*_groups(ours, config, notes)]
    users = [*_users(ours, config, notes)]
    classes = tuple(qos for qos in _CLASSES if qos.name != "urgent" or ours.urgent_gpu_hours > 0)
    if ours.urgent_gpu_hours > 0:
        notes.append(
            f"Limit of {ours.urgent_gpu_hours:g} urgent GPU-hours per project and month: Slurm has no such limit."
            " To limit the class urgent: sacctmgr modify qos urgent set MaxTRESPerAccount=gres/gpu=N"
        )
    return DesiredAccounting(instance, tuple(groups), tuple(users), classes, tuple(notes))


def _groups(ours: HeliostatAccounts, config: AccountingConfig, notes: list[str]) -> Iterator[DesiredAccount]:
    for department in ours.departments:
        limits = _limits(department.quota, f"department {department.name}", config, notes)
        account = department_account_name(department.name)
        yield DesiredAccount("department", department.name, account, "root", department.share, limits)
    for project in ours.projects:
        limits = _limits(project.quota, f"project {project.name}", config, notes)
        above = department_account_name(project.department)
        yield DesiredAccount(
            "project", project.name, project_account_name(project.name), above, project.share, limits
        )


def _users(ours: HeliostatAccounts, config: AccountingConfig, notes: list[str]) -> Iterator[DesiredUser]:
    for user in ours.users:
        projects = [membership.project for membership in user.memberships]
        if not user.active or user.unix_user is None or not projects:
            continue
        if not is_safe_name(user.unix_user):
            notes.append(f"User {user.name}: Slurm does not support the Unix user name {user.unix_user!a}.")
            continue
        limits = _limits(user.quota, f"user {user.name}", config, notes)
        if limits != AccountLimits() and len(projects) > 1:
            notes.append(
                f"Quota of user {user.name}: Slurm applies it to each of the {len(projects)} projects separately."
            )
        projects.sort(key=lambda name: (name != ours.default_project, name))
        yield DesiredUser(user.unix_user, tuple(map(project_account_name, projects)), limits)


def _limits(quota: Quota, owner: str, config: AccountingConfig, notes: list[str]) -> AccountLimits:
    if quota.queued_gpus is not None:
        notes.append(
            f"Limit of {quota.queued_gpus} queued GPUs for {owner}: Slurm has no such limit."
            " Heliostat applies it to jobs that are submitted through Heliostat."
        )
    hours = quota.gpu_hours_per_month
    if hours is not None and not config.resets_usage_monthly:
        notes.append(
            f"Limit of {hours} GPU-hours per month for {owner}: this Slurm does not count per month. Set"
            " PriorityDecayHalfLife=0 and PriorityUsageResetPeriod=MONTHLY in slurm.conf."
        )
        hours = None
    return AccountLimits(quota.running_gpus, None if hours is None else hours * 60)


def _config_notes(config: AccountingConfig) -> Iterable[str]:
    missing = [word for word in ("associations", "limits", "qos") if word not in config.enforced]
    if missing:
        yield (
            f"Slurm does not enforce {', '.join(missing)}. Set"
            f" AccountingStorageEnforce={','.join(sorted(config.enforced | set(missing)))} in slurm.conf."
        )
    if not config.uses_fair_share:
        yield (
            "Slurm does not use shares for the priority. Set PriorityType=priority/multifactor and"
            " PriorityWeightFairshare=100000 in slurm.conf."
        )
    if not config.uses_qos_priority:
        yield "Slurm does not use the QOS for the priority. Set PriorityWeightQOS=100000 in slurm.conf."
    if not config.preempts_by_qos:
        yield (
            "Slurm does not preempt scavenger jobs. Set PreemptType=preempt/qos and"
            " PreemptMode=CANCEL in slurm.conf."
        )


@dataclass(frozen=True, slots=True)
class AccountingPlan:
    cluster: str
    steps: tuple[AccountingStep, ...]
    unmanaged: tuple[str, ...]  # what exists and was not created by Heliostat
    unsupported: tuple[str, ...]


def plan_accounting(
    desired: DesiredAccounting, observed: ObservedAccounting, managed: Collection[AssociationKey]
) -> AccountingPlan:
    """`managed`: memberships that Heliostat added. After its steps are applied, the next plan has no steps."""
    draft = _Draft(desired, observed, frozenset(managed))
    draft.classes()
    for group in desired.accounts:
        draft.group(group)
    for person in desired.users:
        draft.person(person)
    draft.removals()
    draft.compare_shares()
    notes = (*desired.notes, *_qos_notes(draft.observed))
    return AccountingPlan(observed.cluster, tuple(draft.steps), tuple(draft.unmanaged), notes)


def _qos_notes(observed: ObservedAccounting) -> Iterator[str]:
    normal, least = observed.qos.get("normal"), observed.qos.get("scavenger")
    if normal is not None and least is not None and normal.priority <= least.priority:
        yield (
            "Slurm's QOS normal, which Heliostat does not manage, has no higher priority than scavenger. Run:"
            f" sacctmgr modify qos where name=normal set priority={least.priority + 100}"
        )


def managed_memberships_after(
    step: AccountingStep, managed: frozenset[AssociationKey]
) -> frozenset[AssociationKey]:
    match step:
        case AddUser(account, user):
            return managed | {(account, user)}
        case RemoveUser(account, user):
            return managed - {(account, user)}
    return managed


@dataclass(slots=True)
class _Draft:
    desired: DesiredAccounting
    observed: ObservedAccounting  # after the steps so far
    managed: frozenset[AssociationKey]
    steps: list[AccountingStep] = field(default_factory=list)
    unmanaged: list[str] = field(default_factory=list)

    def do(self, step: AccountingStep) -> None:
        self.steps.append(step)
        self.observed = step.apply_to(self.observed)
        self.managed = managed_memberships_after(step, self.managed)

    def classes(self) -> None:
        for qos in self.desired.qos:
            description = ownership_description(self.desired.instance, "class", qos.name)
            existing = self.observed.qos.get(qos.name)
            if existing is None:
                self.do(AddQos(qos.name, description, qos.priority, qos.preempt_mode))
            elif existing.description != description:
                self.unmanaged.append(
                    f"The QOS {qos.name} was not created by this Heliostat. It and its users stay unchanged."
                )
        ours = self._our_qos()
        for qos in self.desired.qos:
            if qos.name not in ours:
                continue
            existing = self.observed.qos[qos.name]
            preempts = tuple(name for name in qos.preempts if name in ours)
            if (existing.priority, existing.preempts, existing.preempt_mode) != (
                qos.priority,
                frozenset(preempts),
                qos.preempt_mode,
            ):
                self.do(SetQos(qos.name, qos.priority, preempts, qos.preempt_mode))

    def group(self, group: DesiredAccount) -> None:
        if group.account in self.observed.descriptions and not self._is_ours(group.account):
            owner = ownership_description(self.desired.instance, group.kind, group.name)
            self.unmanaged.append(
                f"The account {group.account} was not created by this Heliostat. It stays unchanged"
                f" and is used for the {group.kind} {group.name}. To let Heliostat manage it: sacctmgr modify"
                f" account where name={group.account} set description={owner}"
            )
            return
        if group.parent != "root" and not self._is_ours(group.parent):
            self.unmanaged.append(
                f"The {group.kind} {group.name} gets no account:"
                f" its parent {group.parent} is not managed by Heliostat."
            )
            return
        existing = self.observed.associations.get((group.account, ""))
        if existing is None:
            description = ownership_description(self.desired.instance, group.kind, group.name)
            self.do(AddAccount(group.account, group.parent, description, group.share, group.limits))
        else:
            after = replace(existing, parent=group.parent, share=group.share, limits=group.limits)
            if after != existing:
                self.do(SetAccount(group.account, existing, after))
        self._grant(group.account, "")

    def person(self, person: DesiredUser) -> None:
        for account in person.accounts:
            existing = self.observed.associations.get((account, person.user))
            if existing is not None:
                self._keep(account, person, existing)
            elif self._is_ours(account):
                self.do(AddUser(account, person.user, person.limits))
                self._grant(account, person.user)
            elif account in self.observed.descriptions:
                self.unmanaged.append(
                    f"{person.user} is not in the account {account}, which Heliostat does not manage. Run:"
                    f" sacctmgr add user {person.user} account={account}"
                )
        self._default(person)

    def removals(self) -> None:
        """Last: Slurm refuses to remove a user with jobs in the account; all other steps are done by then."""
        desired_keys = {(account, person.user) for person in self.desired.users for account in person.accounts}
        for key in sorted(self.managed - desired_keys):
            if key in self.observed.associations and self._is_ours(key[0]):
                self.do(RemoveUser(*key))

    def compare_shares(self) -> None:
        """Next to accounts with large shares, Heliostat's own would hardly get anything."""
        departments = {group.account for group in self.desired.accounts if group.kind == "department"}
        shares = {
            account: association.share
            for (account, user), association in self.observed.associations.items()
            if not user and association.parent == "root" and association.share is not None
        }
        ours = [share for account, share in shares.items() if account in departments and self._is_ours(account)]
        others = {account: share for account, share in shares.items() if account not in departments}
        if not ours or not others or mean(ours) * _FAR_LARGER > mean(others.values()):
            return
        largest = sorted(others, key=lambda account: (-others[account], account))[:_MAX_LISTED]
        listed = ", ".join(f"{account} {others[account]}" for account in largest)
        percent = format_percent(sum(ours) / (sum(ours) + sum(others.values())))
        self.unmanaged.append(
            f"Accounts below root that Heliostat does not manage have far larger shares ({listed}):"
            f" all of Heliostat's departments together are entitled to {percent} of the cluster."
            " To change that: helio department set NAME --share N"
        )

    def _keep(self, account: str, person: DesiredUser, existing: Association) -> None:
        if (account, person.user) not in self.managed or not self._is_ours(account):
            return
        after = replace(existing, share=1, limits=person.limits)
        if after != existing:
            self.do(SetUser(account, person.user, existing, after))
        self._grant(account, person.user)

    def _default(self, person: DesiredUser) -> None:
        """A default account that Heliostat did not set stays."""
        current = self.observed.default_accounts.get(person.user)
        if current is not None and (current, person.user) not in self.managed:
            return
        desired = next(
            (name for name in person.accounts if (name, person.user) in self.observed.associations), None
        )
        if desired is not None and desired != current:
            self.do(SetDefaultAccount(desired, person.user))

    def _grant(self, account: str, user: str) -> None:
        missing = tuple(sorted(set(self._our_qos()) - self.observed.associations[account, user].qos))
        if missing:
            self.do(GrantQos(account, user, missing))

    def _our_qos(self) -> list[str]:
        return [qos.name for qos in self.desired.qos if self._is_our_qos(qos.name)]

    def _is_our_qos(self, name: str) -> bool:
        existing = self.observed.qos.get(name)
        return existing is not None and existing.description == ownership_description(
            self.desired.instance, "class", name
        )

    def _is_ours(self, account: str) -> bool:
        return self.observed.descriptions.get(account) in set(self._our_descriptions(account))

    def _our_descriptions(self, account: str) -> Iterator[str]:
        for kind, name in (("project", account), ("department", account.removeprefix("_"))):
            yield ownership_description(self.desired.instance, kind, name)
