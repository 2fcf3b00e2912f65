"""Reads what Slurm says about accounts and their use, and carries out steps."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from heliostat.engines.accounts import AccountUse
from heliostat.engines.slurm.accounts.plan import Conduct, project_account
from heliostat.engines.slurm.accounts.steps import Association, Found, Limits, Place, Qos
from heliostat.engines.slurm.client import SlurmRefused
from heliostat.engines.slurm.parse import config_of
from heliostat.engines.slurm.timing import Refreshed
from heliostat.errors import Conflict, EngineUnavailable

_SHOW = ("sacctmgr", "--parsable2", "--noheader", "show")
_ALREADY = ("nothing new added", "nothing modified", "nothing deleted")
_HINT = "It counts again once slurmdbd answers: see its log, and `sacctmgr show cluster`."
SSHARE_FIELDS = "Account,User,NormShares,RawUsage,GrpTRESRaw"
_OLD_SECONDS = 30.0
_FIRST_SECONDS = 5.0
_USAGE_SECONDS, _USAGE_WAIT_SECONDS = 5.0, 2.0
_SSHARE = ("sshare", "--all", "--parsable2", "--noheader", f"--format={SSHARE_FIELDS}")


class Asks(Protocol):
    def ask(self, argv: Sequence[str]) -> str:
        """What it prints. Raises SlurmRefused, EngineUnavailable."""


def read_conduct(slurm: Asks) -> Conduct:
    return conduct_of(slurm.ask(["scontrol", "show", "config"]))


def read_accounts(slurm: Asks, cluster: str) -> Found:
    """Raises EngineUnavailable; Conflict where Slurm keeps no accounting."""
    try:
        here = ("where", f"cluster={cluster}")
        descriptions = slurm.ask([*_SHOW, "account", "format=account,description"])
        associations = slurm.ask([*_SHOW, "associations", *here, f"format={_ASSOCIATION}"])
        users = slurm.ask([*_SHOW, "user", *here, "format=user,defaultaccount"])
        qos = slurm.ask([*_SHOW, "qos", "format=name,priority,preempt,preemptmode,description"])
    except SlurmRefused as error:
        raise Conflict(f"Slurm's accounting cannot be read: {first_line(error)}.", _HINT) from error
    return Found(
        cluster,
        {row[0]: row[1] for row in _rows(descriptions, 2)},
        dict(_associations(associations)),
        {row[0]: row[1] for row in _rows(users, 2) if row[1]},
        {row[0]: _qos(row) for row in _rows(qos, 5)},
    )


def carry_out(slurm: Asks, argv: Sequence[str]) -> bool:
    """Already so is success, but not our doing: False. Raises SlurmRefused, EngineUnavailable."""
    try:
        slurm.ask(argv)
    except SlurmRefused as error:
        if any(words in error.said.lower() for words in _ALREADY):
            return False
        raise
    return True


def first_line(error: SlurmRefused) -> str:
    """What it says first; below are the jobs or associations it is about."""
    lines = [line.strip() for line in error.said.splitlines() if line.strip()]
    return (lines[0] if lines else str(error)).removeprefix("Error with request: ").rstrip(".")[:200]


def conduct_of(said: str) -> Conduct:
    """Of `scontrol show config`."""
    settings = config_of(said)
    cluster = settings.get("ClusterName", "")
    if not cluster:
        raise EngineUnavailable("Slurm does not say what its cluster is called.", "See `scontrol show config`.")
    enforced = frozenset(settings.get("AccountingStorageEnforce", "none").lower().split(",")) - {"none"}
    if "safe" in enforced or "limits" in enforced or "qos" in enforced:
        enforced |= {"associations"}  # which these imply
    is_multifactor = settings.get("PriorityType") == "priority/multifactor"
    return Conduct(
        cluster=cluster,
        enforces=enforced | ({"limits"} if "safe" in enforced else set()),
        counts_by_month=settings.get("PriorityDecayHalfLife") == "00:00:00"
        and settings.get("PriorityUsageResetPeriod") == "MONTHLY",
        weighs_shares=is_multifactor and settings.get("PriorityWeightFairShare", "0") != "0",
        weighs_classes=is_multifactor and settings.get("PriorityWeightQOS", "0") != "0",
        preempts_by_qos=settings.get("PreemptType") == "preempt/qos",
    )


_ASSOCIATION = "account,user,partition,parentname,share,grptres,grptresmins,qos"


def _associations(said: str) -> Iterator[tuple[Place, Association]]:
    """But those for one partition only, which are never ours."""
    for account, user, partition, parent, share, tres, minutes, qos in _rows(said, 8):
        if partition:
            continue
        limits = Limits(_gpus(tres), _gpus(minutes))
        names = frozenset(name for name in qos.split(",") if name)
        yield (account, user), Association(parent, int(share) if share.isdecimal() else None, limits, names)


def _gpus(tres: str) -> int | None:
    values = dict(part.partition("=")[::2] for part in tres.split(","))
    value = values.get("gres/gpu", "")
    return int(value) if value.isdecimal() else None


def _qos(row: Sequence[str]) -> Qos:
    _, priority, preempts, mode, description = row
    names = frozenset(name for name in preempts.split(",") if name)
    return Qos(description, int(priority) if priority.isdecimal() else 0, names, mode.lower())


def _rows(said: str, columns: int) -> Iterator[list[str]]:
    """The last column is what people wrote, and may hold anything."""
    for line in said.splitlines():
        row = line.split("|", columns - 1)
        if len(row) == columns:
            yield row


def parse_sshare(said: str) -> Iterator[AccountUse]:
    """Of `Account|User|NormShares|RawUsage|GrpTRESRaw`; what is below stands one blank further in."""
    above: list[str] = []
    for line in said.splitlines():
        row = line.split("|")
        if len(row) < 5:
            continue
        name, user = row[0].strip(), row[1].strip()
        depth = len(row[0]) - len(row[0].lstrip(" "))
        del above[depth:]
        parent = above[-1] if above else ""
        if not user:
            above += [name] * (depth + 1 - len(above))
        yield AccountUse(name, user, parent, _number(row[2]), _number(row[3]), _gpu_minutes(row[4]) / 60)


def _gpu_minutes(tres: str) -> float:
    return _number(dict(part.partition("=")[::2] for part in tres.split(",")).get("gres/gpu", ""))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class Access:
    conduct: Conduct
    found: Found

    def account_for(self, user: str, project: str) -> str | None:
        account = project_account(project)
        return account if (account, user) in self.found.associations else None

    def refused_qos(self, user: str, project: str, name: str) -> str | None:
        """Why Slurm will refuse this QOS to them; None if it will not, or it is not known."""
        if name == "normal":
            return None
        if name not in self.found.qos:
            return f"it has no QOS {name}"
        account = self.account_for(user, project) or self.found.defaults.get(user, "")
        there = self.found.associations.get((account, user))
        if there is None or name in there.qos or "qos" not in self.conduct.enforces:
            return None
        return f"it does not let {user} use the QOS {name} in the account {account}"


class SlurmAccounts:
    """Threads may share it. What needs the accounting says nothing while that is away."""

    def __init__(self, slurm: Asks) -> None:
        self.slurm = slurm
        self.changing = threading.Lock()  # held by whoever makes a plan and carries it out
        self._access = Refreshed("slurm_accounts", self._read_access, _OLD_SECONDS)
        self._usage = Refreshed("slurm_usage", self._read_usage, _USAGE_SECONDS)

    def look(self) -> Access:
        """As it is now. Raises EngineUnavailable, Conflict, SlurmRefused."""
        return self._access.now()

    def look_again(self) -> None:
        """Something was changed: what was seen before is old."""
        self._access.again()

    def look_if_old(self) -> None:
        """Returns at once: the accounting may be slow or away while Slurm itself is not."""
        self._access.if_old()

    def account_for(self, user: str, project: str) -> str | None:
        """The account of this project, if Slurm lets this user use it. Waits a while for the first look."""
        access = self._first_access()
        return access.account_for(user, project) if access else None

    def refused_qos(self, user: str, project: str, name: str) -> str | None:
        """Why, if Slurm will refuse it. Waits for the first look, or what comes just after our start fails."""
        access = self._first_access()
        return access.refused_qos(user, project, name) if access else None

    def _first_access(self) -> Access | None:
        if self._access.last is None:
            self._access.if_old()
            self._access.wait(_FIRST_SECONDS)
        return self._access.last

    def used(self) -> tuple[AccountUse, ...]:
        """Slurm's own count of what each has used, of some seconds ago; while it is away, the last."""
        self._usage.if_old()
        self._usage.wait(_USAGE_WAIT_SECONDS)
        return self._usage.last or ()

    def _read_access(self) -> Access:
        conduct = read_conduct(self.slurm)
        return Access(conduct, read_accounts(self.slurm, conduct.cluster))

    def _read_usage(self) -> tuple[AccountUse, ...]:
        return tuple(parse_sshare(self.slurm.ask(_SSHARE)))
