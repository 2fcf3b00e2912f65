"""Reads Slurm's accounting (accounts, associations, QOS, usage) and changes it with `sacctmgr`."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from heliostat.engines.account_sync import AccountUsage
from heliostat.engines.slurm.accounts.plan import AccountingConfig, project_account_name
from heliostat.engines.slurm.accounts.steps import (
    AccountLimits,
    Association,
    AssociationKey,
    ObservedAccounting,
    Qos,
)
from heliostat.engines.slurm.client import SlurmRefused
from heliostat.engines.slurm.command_output import parse_slurm_config
from heliostat.engines.slurm.polling import RefreshedValue
from heliostat.errors import Conflict, EngineUnavailable

_SHOW = ("sacctmgr", "--parsable2", "--noheader", "show")
_ALREADY = ("nothing new added", "nothing modified", "nothing deleted")
_HINT = "Check that slurmdbd runs: see its log, and `sacctmgr show cluster`."
SSHARE_FIELDS = "Account,User,NormShares,RawUsage,GrpTRESRaw"
_OLD_SECONDS = 30.0
_FIRST_SECONDS = 5.0
_USAGE_SECONDS, _USAGE_WAIT_SECONDS = 5.0, 2.0
_SSHARE = ("sshare", "--all", "--parsable2", "--noheader", f"--format={SSHARE_FIELDS}")


class CommandRunner(Protocol):
    def run_command(self, argv: Sequence[str]) -> str:
        """Returns its output. Raises SlurmRefused, EngineUnavailable."""


def read_accounting_config(slurm: CommandRunner) -> AccountingConfig:
    return parse_accounting_config(slurm.run_command(["scontrol", "show", "config"]))


def read_accounting(slurm: CommandRunner, cluster: str) -> ObservedAccounting:
    """Raises EngineUnavailable; Conflict if Slurm has no accounting."""
    try:
        cluster_filter = ("where", f"cluster={cluster}")
        descriptions = slurm.run_command([*_SHOW, "account", "format=account,description"])
        associations = slurm.run_command([*_SHOW, "associations", *cluster_filter, f"format={_ASSOCIATION}"])
        users = slurm.run_command([*_SHOW, "user", *cluster_filter, "format=user,defaultaccount"])
        qos = slurm.run_command([*_SHOW, "qos", "format=name,priority,preempt,preemptmode,description"])
    except SlurmRefused as error:
        raise Conflict(f"Cannot read Slurm's accounting: {first_error_line(error)}.", _HINT) from error
    return ObservedAccounting(
        cluster,
        {row[0]: row[1] for row in _rows(descriptions, 2)},
        dict(_associations(associations)),
        {row[0]: row[1] for row in _rows(users, 2) if row[1]},
        {row[0]: _qos(row) for row in _rows(qos, 5)},
    )


def run_sacctmgr(slurm: CommandRunner, argv: Sequence[str]) -> bool:
    """False: there was nothing to change. Raises SlurmRefused, EngineUnavailable."""
    try:
        slurm.run_command(argv)
    except SlurmRefused as error:
        if any(words in error.output.lower() for words in _ALREADY):
            return False
        raise
    return True


def first_error_line(error: SlurmRefused) -> str:
    """The first line is the message; the others list the jobs or associations concerned."""
    lines = [line.strip() for line in error.output.splitlines() if line.strip()]
    return (lines[0] if lines else str(error)).removeprefix("Error with request: ").rstrip(".")[:200]


def parse_accounting_config(output: str) -> AccountingConfig:
    """From the output of `scontrol show config`."""
    settings = parse_slurm_config(output)
    cluster = settings.get("ClusterName", "")
    if not cluster:
        raise EngineUnavailable("Slurm does not report the name of its cluster.", "See `scontrol show config`.")
    enforced = frozenset(settings.get("AccountingStorageEnforce", "none").lower().split(",")) - {"none"}
    if "safe" in enforced or "limits" in enforced or "qos" in enforced:
        enforced |= {"associations"}  # implied by these
    is_multifactor = settings.get("PriorityType") == "priority/multifactor"
    return AccountingConfig(
        cluster=cluster,
        enforced=enforced | ({"limits"} if "safe" in enforced else set()),
        resets_usage_monthly=settings.get("PriorityDecayHalfLife") == "00:00:00"
        and settings.get("PriorityUsageResetPeriod") == "MONTHLY",
        uses_fair_share=is_multifactor and settings.get("PriorityWeightFairShare", "0") != "0",
        uses_qos_priority=is_multifactor and settings.get("PriorityWeightQOS", "0") != "0",
        preempts_by_qos=settings.get("PreemptType") == "preempt/qos",
    )


_ASSOCIATION = "account,user,partition,parentname,share,grptres,grptresmins,qos"


def _associations(output: str) -> Iterator[tuple[AssociationKey, Association]]:
    """Without those for a single partition, which Heliostat never creates."""
    for account, user, partition, parent, share, tres, minutes, qos in _rows(output, 8):
        if partition:
            continue
        limits = AccountLimits(_gpus(tres), _gpus(minutes))
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


def _rows(output: str, columns: int) -> Iterator[list[str]]:
    """The last column is free text and may contain the delimiter."""
    for line in output.splitlines():
        row = line.split("|", columns - 1)
        if len(row) == columns:
            yield row


def parse_sshare_usage(output: str) -> Iterator[AccountUsage]:
    """From lines `Account|User|NormShares|RawUsage|GrpTRESRaw`; children are indented by one more blank."""
    ancestors: list[str] = []
    for line in output.splitlines():
        row = line.split("|")
        if len(row) < 5:
            continue
        name, user = row[0].strip(), row[1].strip()
        depth = len(row[0]) - len(row[0].lstrip(" "))
        del ancestors[depth:]
        parent = ancestors[-1] if ancestors else ""
        if not user:
            ancestors += [name] * (depth + 1 - len(ancestors))
        yield AccountUsage(name, user, parent, _number(row[2]), _number(row[3]), _gpu_minutes(row[4]) / 60)


def _gpu_minutes(tres: str) -> float:
    return _number(dict(part.partition("=")[::2] for part in tres.split(",")).get("gres/gpu", ""))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class AccountAccess:
    config: AccountingConfig
    accounting: ObservedAccounting

    def find_account(self, user: str, project: str) -> str | None:
        account = project_account_name(project)
        return account if (account, user) in self.accounting.associations else None

    def qos_refusal_reason(self, user: str, project: str, name: str) -> str | None:
        """Why Slurm will refuse this QOS to the user; None: it will not, or this is unknown."""
        if name == "normal":
            return None
        if name not in self.accounting.qos:
            return f"the QOS {name} does not exist"
        account = self.find_account(user, project) or self.accounting.default_accounts.get(user, "")
        association = self.accounting.associations.get((account, user))
        if association is None or name in association.qos or "qos" not in self.config.enforced:
            return None
        return f"{user} may not use the QOS {name} in the account {account}"


class SlurmAccounts:
    """Cached view of Slurm's accounting. Thread-safe. While the accounting is unavailable, results are empty."""

    def __init__(self, slurm: CommandRunner) -> None:
        self.client = slurm
        self.change_lock = threading.Lock()  # held while a plan is made and applied
        self.on_change: Callable[[], None] = lambda: None
        self._access = RefreshedValue("slurm_accounts", self._read_access, _OLD_SECONDS)
        self._usage = RefreshedValue("slurm_usage", self._read_usage, _USAGE_SECONDS)

    def refresh(self) -> AccountAccess:
        """Reads the current state. Raises EngineUnavailable, Conflict, SlurmRefused."""
        return self._access.refresh()

    def refresh_after_change(self) -> None:
        """Reads the state again, without raising."""
        self._access.try_refresh()
        self.on_change()

    def refresh_if_stale(self) -> None:
        """Returns at once: the accounting may be slow or unavailable while Slurm itself works."""
        self._access.refresh_if_stale()

    def find_account(self, user: str, project: str) -> str | None:
        """The project's account, if this user may use it. Waits a few seconds for the first refresh."""
        access = self._first_access()
        return access.find_account(user, project) if access else None

    def qos_refusal_reason(self, user: str, project: str, name: str) -> str | None:
        """Why Slurm will refuse it, or None. Waits for the first refresh, for requests right after the start."""
        access = self._first_access()
        return access.qos_refusal_reason(user, project, name) if access else None

    def _first_access(self) -> AccountAccess | None:
        if self._access.value is None:
            self._access.refresh_if_stale()
            self._access.wait_for_refresh(_FIRST_SECONDS)
        return self._access.value

    def account_usage(self) -> tuple[AccountUsage, ...]:
        """Slurm's usage of each account and user, at most some seconds old unless Slurm is unavailable."""
        self._usage.refresh_if_stale()
        self._usage.wait_for_refresh(_USAGE_WAIT_SECONDS)
        return self._usage.value or ()

    def _read_access(self) -> AccountAccess:
        config = read_accounting_config(self.client)
        return AccountAccess(config, read_accounting(self.client, config.cluster))

    def _read_usage(self) -> tuple[AccountUsage, ...]:
        return tuple(parse_sshare_usage(self.client.run_command(_SSHARE)))
