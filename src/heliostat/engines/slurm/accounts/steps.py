"""Slurm's accounting as records, and the single steps that change it. Pure.

Each step has arguments for `sacctmgr`, a sentence for users, and its effect on the records.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

AssociationKey = tuple[str, str]  # account, user; "" for the account itself
_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,127}")
ORGANIZATION = "heliostat"


def is_safe_name(name: str) -> bool:
    """Slurm stores it unchanged, and no character in it has a special meaning."""
    return _NAME.fullmatch(name) is not None


def ownership_description(instance: str, kind: str, name: str) -> str:
    """The description that marks an account or QOS as created by this Heliostat."""
    return f"heliostat:{instance}:{kind}:{name}"


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """None: no limit."""

    gpus: int | None = None  # in use at the same time
    gpu_minutes: int | None = None  # since Slurm last reset its usage


@dataclass(frozen=True, slots=True)
class Association:
    """Settings of an account, or of a user in it, on this cluster."""

    parent: str = ""  # only of accounts
    share: int | None = 1  # None: not a number
    limits: AccountLimits = AccountLimits()
    qos: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Qos:
    description: str
    priority: int = 0
    preempts: frozenset[str] = frozenset()
    preempt_mode: str = "cluster"


@dataclass(frozen=True, slots=True)
class ObservedAccounting:
    cluster: str
    descriptions: Mapping[str, str] = field(default_factory=dict)  # of accounts, by name
    associations: Mapping[AssociationKey, Association] = field(default_factory=dict)
    default_accounts: Mapping[str, str] = field(default_factory=dict)  # the default account of each user
    qos: Mapping[str, Qos] = field(default_factory=dict)

    def with_descendants(self, account: str) -> set[str]:
        """This account and all below it."""
        names = {account}
        accounts = {key[0]: observed.parent for key, observed in self.associations.items() if not key[1]}
        while more := {name for name, parent in accounts.items() if parent in names} - names:
            names |= more
        return names


class AccountingStep(Protocol):
    @property
    def sentence(self) -> str: ...

    def argv(self, cluster: str) -> list[str]: ...

    def apply_to(self, observed: ObservedAccounting) -> ObservedAccounting: ...


@dataclass(frozen=True, slots=True)
class AddQos:
    name: str
    description: str
    priority: int
    preempt_mode: str

    @property
    def sentence(self) -> str:
        return f"Add the QOS {self.name}."

    def argv(self, cluster: str) -> list[str]:
        values = f"priority={self.priority}", f"preemptmode={self.preempt_mode}"
        return [*_SACCTMGR, "add", "qos", f"name={self.name}", f"description={self.description}", *values]

    def apply_to(self, observed: ObservedAccounting) -> ObservedAccounting:
        new = Qos(self.description, self.priority, frozenset(), self.preempt_mode)
        return replace(observed, qos={**observed.qos, self.name: new})


@dataclass(frozen=True, slots=True)
class SetQos:
    name: str
    priority: int
    preempts: tuple[str, ...]
    preempt_mode: str

    @property
    def sentence(self) -> str:
        preempts = f", preempts {', '.join(self.preempts)}" if self.preempts else ""
        return f"Set the QOS {self.name}: priority {self.priority}{preempts}."

    def argv(self, cluster: str) -> list[str]:
        values = f"priority={self.priority}", f"preemptmode={self.preempt_mode}"
        return [*_SACCTMGR, "modify", "qos", "where", f"name={self.name}", "set", *values, self._preempt()]

    def _preempt(self) -> str:
        return f"preempt={','.join(self.preempts)}"

    def apply_to(self, observed: ObservedAccounting) -> ObservedAccounting:
        new = Qos(observed.qos[self.name].description, self.priority, frozenset(self.preempts), self.preempt_mode)
        return replace(observed, qos={**observed.qos, self.name: new})


@dataclass(frozen=True, slots=True)
class AddAccount:
    account: str
    parent: str
    description: str
    share: int
    limits: AccountLimits

    @property
    def sentence(self) -> str:
        return (
            f"Add the account {self.account} below {self.parent}, share {self.share}{_limits_text(self.limits)}."
        )

    def argv(self, cluster: str) -> list[str]:
        target = f"name={self.account}", f"cluster={cluster}", f"parent={self.parent}"
        about = f"description={self.description}", f"organization={ORGANIZATION}", f"fairshare={self.share}"
        return [*_SACCTMGR, "add", "account", *target, *about, *_limit_arguments(AccountLimits(), self.limits)]

    def apply_to(self, observed: ObservedAccounting) -> ObservedAccounting:
        above = observed.associations.get((self.parent, ""), Association())
        new = Association(self.parent, self.share, self.limits, above.qos)
        return replace(
            observed,
            descriptions={**observed.descriptions, self.account: self.description},
            associations={**observed.associations, (self.account, ""): new},
        )


@dataclass(frozen=True, slots=True)
class SetAccount:
    """Passes only what differs: Slurm refuses to set the same parent."""

    account: str
    before: Association
    after: Association

    @property
    def sentence(self) -> str:
        return f"Set the account {self.account}: {_difference(self.before, self.after)}."

    def argv(self, cluster: str) -> list[str]:
        where = "where", f"name={self.account}", f"cluster={cluster}"
        return [*_SACCTMGR, "modify", "account", *where, "set", *_change_arguments(self.before, self.after)]

    def apply_to(self, observed: ObservedAccounting) -> ObservedAccounting:
        return replace(observed, associations={**observed.associations, (self.account, ""): self.after})


@dataclass(frozen=True, slots=True)
class GrantQos:
    """For an account and all below it, or for one user in it (`user` is not empty)."""

    account: str
    user: str
    names: tuple[str, ...]

    @property
    def sentence(self) -> str:
        grantee = f"{self.user} in the account {self.account}" if self.user else f"the account {self.account}"
        return f"Allow {grantee} to use the QOS {', '.join(self.names)}."

    def argv(self, cluster: str) -> list[str]:
        kind = "user" if self.user else "account"
        target = (f"name={self.user}", f"account={self.account}") if self.user else (f"name={self.account}",)
        grant = f"qos+={','.join(self.names)}"
        return [*_SACCTMGR, "modify", kind, "where", *target, f"cluster={cluster}", "set", grant]

    def apply_to(self, observed: ObservedAccounting) -> ObservedAccounting:
        accounts = observed.with_descendants(self.account)
        return replace(
            observed,
            associations={
                key: replace(value, qos=value.qos | set(self.names)) if self._affects(key, accounts) else value
                for key, value in observed.associations.items()
            },
        )

    def _affects(self, key: AssociationKey, accounts: set[str]) -> bool:
        return key == (self.account, self.user) if self.user else key[0] in accounts


@dataclass(frozen=True, slots=True)
class AddUser:
    account: str
    user: str
    limits: AccountLimits

    @property
    def sentence(self) -> str:
        return f"Add {self.user} to the account {self.account}{_limits_text(self.limits)}."

    def argv(self, cluster: str) -> list[str]:
        target = f"name={self.user}", f"account={self.account}", f"cluster={cluster}", "fairshare=1"
        return [*_SACCTMGR, "add", "user", *target, *_limit_arguments(AccountLimits(), self.limits)]

    def apply_to(self, observed: ObservedAccounting) -> ObservedAccounting:
        above = observed.associations.get((self.account, ""), Association())
        new = Association("", 1, self.limits, above.qos)
        return replace(
            observed,
            associations={**observed.associations, (self.account, self.user): new},
            default_accounts={self.user: self.account, **observed.default_accounts},
        )


@dataclass(frozen=True, slots=True)
class SetUser:
    account: str
    user: str
    before: Association
    after: Association

    @property
    def sentence(self) -> str:
        return f"Set {self.user} in the account {self.account}: {_difference(self.before, self.after)}."

    def argv(self, cluster: str) -> list[str]:
        where = "where", f"name={self.user}", f"account={self.account}", f"cluster={cluster}"
        return [*_SACCTMGR, "modify", "user", *where, "set", *_change_arguments(self.before, self.after)]

    def apply_to(self, observed: ObservedAccounting) -> ObservedAccounting:
        return replace(observed, associations={**observed.associations, (self.account, self.user): self.after})


@dataclass(frozen=True, slots=True)
class SetDefaultAccount:
    account: str
    user: str

    @property
    def sentence(self) -> str:
        return f"Make {self.account} the default account of {self.user}."

    def argv(self, cluster: str) -> list[str]:
        where = "where", f"name={self.user}", f"cluster={cluster}"
        return [*_SACCTMGR, "modify", "user", *where, "set", f"defaultaccount={self.account}"]

    def apply_to(self, observed: ObservedAccounting) -> ObservedAccounting:
        return replace(observed, default_accounts={**observed.default_accounts, self.user: self.account})


@dataclass(frozen=True, slots=True)
class RemoveUser:
    account: str
    user: str

    @property
    def sentence(self) -> str:
        return f"Remove {self.user} from the account {self.account}."

    def argv(self, cluster: str) -> list[str]:
        where = "where", f"name={self.user}", f"account={self.account}", f"cluster={cluster}"
        return [*_SACCTMGR, "delete", "user", *where]

    def apply_to(self, observed: ObservedAccounting) -> ObservedAccounting:
        left = {key: value for key, value in observed.associations.items() if key != (self.account, self.user)}
        has_more = any(user == self.user for _, user in left)
        defaults = dict(observed.default_accounts)
        if not has_more or defaults.get(self.user) == self.account:
            defaults.pop(self.user, None)
        return replace(observed, associations=left, default_accounts=defaults)


_SACCTMGR = ("sacctmgr", "--immediate", "--quiet")


def _limit_arguments(before: AccountLimits, after: AccountLimits) -> list[str]:
    pairs = (("GrpTRES", before.gpus, after.gpus), ("GrpTRESMins", before.gpu_minutes, after.gpu_minutes))
    return [f"{name}=gres/gpu={-1 if new is None else new}" for name, old, new in pairs if old != new]


def _change_arguments(before: Association, after: Association) -> list[str]:
    parent = [f"parent={after.parent}"] if after.parent != before.parent else []
    share = [f"fairshare={after.share}"] if after.share != before.share else []
    return [*parent, *share, *_limit_arguments(before.limits, after.limits)]


def _difference(before: Association, after: Association) -> str:
    parts = []
    if after.parent != before.parent:
        parts.append(f"below {after.parent} instead of {before.parent or 'nothing'}")
    if after.share != before.share:
        parts.append(f"share {after.share} instead of {before.share}")
    if after.limits.gpus != before.limits.gpus:
        parts.append(f"limit of GPUs {_limit(after.limits.gpus)} instead of {_limit(before.limits.gpus)}")
    if after.limits.gpu_minutes != before.limits.gpu_minutes:
        old, new = before.limits.gpu_minutes, after.limits.gpu_minutes
        parts.append(f"limit of GPU-minutes {_limit(new)} instead of {_limit(old)}")
    return ", ".join(parts)


def _limit(value: int | None) -> str:
    return "none" if value is None else str(value)


def _limits_text(limits: AccountLimits) -> str:
    gpus = "" if limits.gpus is None else f", at most {limits.gpus} GPUs at the same time"
    return gpus + ("" if limits.gpu_minutes is None else f", at most {limits.gpu_minutes} GPU-minutes per month")
