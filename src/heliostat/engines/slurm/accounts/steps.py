"""Slurm's accounts as they are found, and the small steps that change them: pure.

Each step knows its words for `sacctmgr`, a sentence for people, and what is found after it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

AssociationKey = tuple[str, str]  # account, user; "" for the account itself
_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]{0,127}")
ORGANIZATION = "heliostat"


def is_safe_name(name: str) -> bool:
    """Slurm keeps it as it is, and gives no meaning to anything in it."""
    return _NAME.fullmatch(name) is not None


def ownership_description(instance: str, kind: str, name: str) -> str:
    """The description by which we know our own again."""
    return f"heliostat:{instance}:{kind}:{name}"


@dataclass(frozen=True, slots=True)
class AccountLimits:
    """None: no limit."""

    gpus: int | None = None  # at once
    gpu_minutes: int | None = None  # since Slurm last began to count anew


@dataclass(frozen=True, slots=True)
class Association:
    """What an account, or a user in it, has on this cluster."""

    parent: str = ""  # of an account
    share: int | None = 1  # None: something else than a number
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
        """Accounts below this one, itself included."""
        names = {account}
        while more := {a for (a, u), one in self.associations.items() if not u and one.parent in names} - names:
            names |= more
        return names


class AccountingStep(Protocol):
    @property
    def sentence(self) -> str: ...

    def argv(self, cluster: str) -> list[str]: ...

    def apply_to(self, found: ObservedAccounting) -> ObservedAccounting: ...


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
        return [*_WORDS, "add", "qos", f"name={self.name}", f"description={self.description}", *values]

    def apply_to(self, found: ObservedAccounting) -> ObservedAccounting:
        made = Qos(self.description, self.priority, frozenset(), self.preempt_mode)
        return replace(found, qos={**found.qos, self.name: made})


@dataclass(frozen=True, slots=True)
class SetQos:
    name: str
    priority: int
    preempts: tuple[str, ...]
    preempt_mode: str

    @property
    def sentence(self) -> str:
        over = f", before {', '.join(self.preempts)}" if self.preempts else ""
        return f"Set the QOS {self.name}: priority {self.priority}{over}."

    def argv(self, cluster: str) -> list[str]:
        values = f"priority={self.priority}", f"preemptmode={self.preempt_mode}"
        return [*_WORDS, "modify", "qos", "where", f"name={self.name}", "set", *values, self._preempt()]

    def _preempt(self) -> str:
        return f"preempt={','.join(self.preempts)}"

    def apply_to(self, found: ObservedAccounting) -> ObservedAccounting:
        made = Qos(found.qos[self.name].description, self.priority, frozenset(self.preempts), self.preempt_mode)
        return replace(found, qos={**found.qos, self.name: made})


@dataclass(frozen=True, slots=True)
class AddAccount:
    account: str
    parent: str
    description: str
    share: int
    limits: AccountLimits

    @property
    def sentence(self) -> str:
        return f"Add the account {self.account} below {self.parent}, share {self.share}{_said(self.limits)}."

    def argv(self, cluster: str) -> list[str]:
        who = f"name={self.account}", f"cluster={cluster}", f"parent={self.parent}"
        about = f"description={self.description}", f"organization={ORGANIZATION}", f"fairshare={self.share}"
        return [*_WORDS, "add", "account", *who, *about, *_limit_words(AccountLimits(), self.limits)]

    def apply_to(self, found: ObservedAccounting) -> ObservedAccounting:
        above = found.associations.get((self.parent, ""), Association())
        made = Association(self.parent, self.share, self.limits, above.qos)
        return replace(
            found,
            descriptions={**found.descriptions, self.account: self.description},
            associations={**found.associations, (self.account, ""): made},
        )


@dataclass(frozen=True, slots=True)
class SetAccount:
    """Only what differs is said: Slurm refuses a parent that is the same."""

    account: str
    before: Association
    after: Association

    @property
    def sentence(self) -> str:
        return f"Set the account {self.account}: {_difference(self.before, self.after)}."

    def argv(self, cluster: str) -> list[str]:
        where = "where", f"name={self.account}", f"cluster={cluster}"
        return [*_WORDS, "modify", "account", *where, "set", *_change_words(self.before, self.after)]

    def apply_to(self, found: ObservedAccounting) -> ObservedAccounting:
        return replace(found, associations={**found.associations, (self.account, ""): self.after})


@dataclass(frozen=True, slots=True)
class GrantQos:
    """To an account and all below it, or to one user in it."""

    account: str
    user: str
    names: tuple[str, ...]

    @property
    def sentence(self) -> str:
        who = f"{self.user} in the account {self.account}" if self.user else f"the account {self.account}"
        return f"Let {who} use the QOS {', '.join(self.names)}."

    def argv(self, cluster: str) -> list[str]:
        kind = "user" if self.user else "account"
        who = (f"name={self.user}", f"account={self.account}") if self.user else (f"name={self.account}",)
        grant = f"qos+={','.join(self.names)}"
        return [*_WORDS, "modify", kind, "where", *who, f"cluster={cluster}", "set", grant]

    def apply_to(self, found: ObservedAccounting) -> ObservedAccounting:
        accounts = found.with_descendants(self.account)
        return replace(
            found,
            associations={
                place: replace(one, qos=one.qos | set(self.names)) if self._reaches(place, accounts) else one
                for place, one in found.associations.items()
            },
        )

    def _reaches(self, place: AssociationKey, accounts: set[str]) -> bool:
        return place == (self.account, self.user) if self.user else place[0] in accounts


@dataclass(frozen=True, slots=True)
class AddUser:
    account: str
    user: str
    limits: AccountLimits

    @property
    def sentence(self) -> str:
        return f"Add {self.user} to the account {self.account}{_said(self.limits)}."

    def argv(self, cluster: str) -> list[str]:
        who = f"name={self.user}", f"account={self.account}", f"cluster={cluster}", "fairshare=1"
        return [*_WORDS, "add", "user", *who, *_limit_words(AccountLimits(), self.limits)]

    def apply_to(self, found: ObservedAccounting) -> ObservedAccounting:
        above = found.associations.get((self.account, ""), Association())
        made = Association("", 1, self.limits, above.qos)
        return replace(
            found,
            associations={**found.associations, (self.account, self.user): made},
            default_accounts={self.user: self.account, **found.default_accounts},
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
        return [*_WORDS, "modify", "user", *where, "set", *_change_words(self.before, self.after)]

    def apply_to(self, found: ObservedAccounting) -> ObservedAccounting:
        return replace(found, associations={**found.associations, (self.account, self.user): self.after})


@dataclass(frozen=True, slots=True)
class SetDefaultAccount:
    account: str
    user: str

    @property
    def sentence(self) -> str:
        return f"Make {self.account} the default account of {self.user}."

    def argv(self, cluster: str) -> list[str]:
        where = "where", f"name={self.user}", f"cluster={cluster}"
        return [*_WORDS, "modify", "user", *where, "set", f"defaultaccount={self.account}"]

    def apply_to(self, found: ObservedAccounting) -> ObservedAccounting:
        return replace(found, default_accounts={**found.default_accounts, self.user: self.account})


@dataclass(frozen=True, slots=True)
class RemoveUser:
    account: str
    user: str

    @property
    def sentence(self) -> str:
        return f"Remove {self.user} from the account {self.account}."

    def argv(self, cluster: str) -> list[str]:
        where = "where", f"name={self.user}", f"account={self.account}", f"cluster={cluster}"
        return [*_WORDS, "delete", "user", *where]

    def apply_to(self, found: ObservedAccounting) -> ObservedAccounting:
        left = {place: one for place, one in found.associations.items() if place != (self.account, self.user)}
        has_more = any(user == self.user for _, user in left)
        gone = not has_more or found.default_accounts.get(self.user) == self.account
        defaults = {user: one for user, one in found.default_accounts.items() if not (gone and user == self.user)}
        return replace(found, associations=left, default_accounts=defaults)


_WORDS = ("sacctmgr", "--immediate", "--quiet")


def _limit_words(before: AccountLimits, after: AccountLimits) -> list[str]:
    pairs = (("GrpTRES", before.gpus, after.gpus), ("GrpTRESMins", before.gpu_minutes, after.gpu_minutes))
    return [f"{name}=gres/gpu={-1 if new is None else new}" for name, old, new in pairs if old != new]


def _change_words(before: Association, after: Association) -> list[str]:
    parent = [f"parent={after.parent}"] if after.parent != before.parent else []
    share = [f"fairshare={after.share}"] if after.share != before.share else []
    return [*parent, *share, *_limit_words(before.limits, after.limits)]


def _difference(before: Association, after: Association) -> str:
    parts = []
    if after.parent != before.parent:
        parts.append(f"below {after.parent} instead of {before.parent or 'nothing'}")
    if after.share != before.share:
        parts.append(f"share {after.share} instead of {before.share}")
    if after.limits.gpus != before.limits.gpus:
        parts.append(f"{_limit(after.limits.gpus)} GPUs at once instead of {_limit(before.limits.gpus)}")
    if after.limits.gpu_minutes != before.limits.gpu_minutes:
        old, new = before.limits.gpu_minutes, after.limits.gpu_minutes
        parts.append(f"{_limit(new)} GPU-minutes instead of {_limit(old)}")
    return ", ".join(parts)


def _limit(value: int | None) -> str:
    return "any number of" if value is None else str(value)


def _said(limits: AccountLimits) -> str:
    gpus = "" if limits.gpus is None else f", at most {limits.gpus} GPUs at once"
    return gpus + ("" if limits.gpu_minutes is None else f", at most {limits.gpu_minutes} GPU-minutes a month")
