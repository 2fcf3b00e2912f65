"""Who may use which account and QOS of Slurm: a picture of a while ago, so that nobody waits for it."""

import threading
from dataclasses import dataclass

from heliostat.engines.accounts import AccountUse
from heliostat.engines.slurm.accounts import Found
from heliostat.engines.slurm.accounts_wanted import Conduct, project_account
from heliostat.engines.slurm.refreshed import Refreshed
from heliostat.engines.slurm.sacctmgr import Asks, read_accounts, read_conduct
from heliostat.engines.slurm.share import SSHARE_FIELDS, parse_sshare

_OLD_SECONDS = 30.0
_FIRST_SECONDS = 5.0
_USAGE_SECONDS, _USAGE_WAIT_SECONDS = 5.0, 2.0
_SSHARE = ("sshare", "--all", "--parsable2", "--noheader", f"--format={SSHARE_FIELDS}")


@dataclass(frozen=True, slots=True)
class Picture:
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
        self._pictures = Refreshed("slurm_accounts", self._take_picture, _OLD_SECONDS)
        self._usage = Refreshed("slurm_usage", self._read_usage, _USAGE_SECONDS)

    def look(self) -> Picture:
        """As it is now. Raises EngineUnavailable, Conflict, SlurmRefused."""
        return self._pictures.now()

    def look_again(self) -> None:
        """Something was changed: what was seen before is old."""
        self._pictures.again()

    def look_if_old(self) -> None:
        """Returns at once: the accounting may be slow or away while Slurm itself is not."""
        self._pictures.if_old()

    def account_for(self, user: str, project: str) -> str | None:
        """The account of this project, if Slurm lets this user use it. Waits a while for the first look."""
        picture = self._first_picture()
        return picture.account_for(user, project) if picture else None

    def refused_qos(self, user: str, project: str, name: str) -> str | None:
        """Why, if Slurm will refuse it. Waits for the first look, or what comes just after our start fails."""
        picture = self._first_picture()
        return picture.refused_qos(user, project, name) if picture else None

    def _first_picture(self) -> Picture | None:
        if self._pictures.last is None:
            self._pictures.if_old()
            self._pictures.wait(_FIRST_SECONDS)
        return self._pictures.last

    def used(self) -> tuple[AccountUse, ...]:
        """Slurm's own count of what each has used, of some seconds ago; while it is away, the last."""
        self._usage.if_old()
        self._usage.wait(_USAGE_WAIT_SECONDS)
        return self._usage.last or ()

    def _take_picture(self) -> Picture:
        conduct = read_conduct(self.slurm)
        return Picture(conduct, read_accounts(self.slurm, conduct.cluster))

    def _read_usage(self) -> tuple[AccountUse, ...]:
        return tuple(parse_sshare(self.slurm.ask(_SSHARE)))
