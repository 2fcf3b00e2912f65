"""Reads what the accounting and the configuration of Slurm say about accounts, and carries out steps."""

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

from heliostat.engines.slurm.accounts import Association, Found, Limits, Place, Qos
from heliostat.engines.slurm.accounts_wanted import Conduct
from heliostat.engines.slurm.programs import SlurmRefused
from heliostat.errors import Conflict, EngineUnavailable

_SHOW = ("sacctmgr", "--parsable2", "--noheader", "show")
_SETTING = re.compile(r"(\w+)\s*= ?(.*)")
_ALREADY = ("nothing new added", "nothing modified", "nothing deleted")
_HINT = "It counts again once slurmdbd answers: see its log, and `sacctmgr show cluster`."


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
    lines = (_SETTING.fullmatch(line.strip()) for line in said.splitlines())
    settings = {found[1].lower(): found[2].strip() for found in lines if found}
    cluster = settings.get("clustername", "")
    if not cluster:
        raise EngineUnavailable("Slurm does not say what its cluster is called.", "See `scontrol show config`.")
    enforced = frozenset(settings.get("accountingstorageenforce", "none").lower().split(",")) - {"none"}
    if "safe" in enforced or "limits" in enforced or "qos" in enforced:
        enforced |= {"associations"}  # which these imply
    is_multifactor = settings.get("prioritytype") == "priority/multifactor"
    return Conduct(
        cluster=cluster,
        enforces=enforced | ({"limits"} if "safe" in enforced else set()),
        counts_by_month=settings.get("prioritydecayhalflife") == "00:00:00"
        and settings.get("priorityusageresetperiod") == "MONTHLY",
        weighs_shares=is_multifactor and settings.get("priorityweightfairshare", "0") != "0",
        weighs_classes=is_multifactor and settings.get("priorityweightqos", "0") != "0",
        preempts_by_qos=settings.get("preempttype") == "preempt/qos",
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
