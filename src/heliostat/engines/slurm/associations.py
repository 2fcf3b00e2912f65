"""Who may use which account and QOS of Slurm: a picture of a while ago, so that nobody waits for it."""

import threading
import time
from dataclasses import dataclass

import structlog

from heliostat.engines.slurm.accounts import Found, Place
from heliostat.engines.slurm.accounts_wanted import Conduct, project_account
from heliostat.engines.slurm.commands import SlurmRefused
from heliostat.engines.slurm.sacctmgr import Asks, read_accounts, read_conduct
from heliostat.engines.slurm.share import SSHARE_FIELDS, Used, parse_sshare
from heliostat.errors import HeliostatError

log = structlog.get_logger()
_OLD_SECONDS = 30.0
_FIRST_SECONDS = 5.0
_SHARE_SECONDS = 5.0
_SSHARE = ("sshare", "--all", "--parsable2", "--noheader", f"--format={SSHARE_FIELDS}")


@dataclass(frozen=True, slots=True)
class Picture:
    conduct: Conduct
    found: Found

    def account_for(self, user: str, project: str) -> str | None:
        account = project_account(project)
        return account if (account, user) in self.found.associations else None

    def refused_class(self, user: str, project: str, name: str) -> str | None:
        """Why Slurm will refuse this class to them; None if it will not, or it is not known."""
        if name == "normal":
            return None
        if name not in self.found.qos:
            return f"Slurm has no QOS {name} for the class {name}."
        account = self.account_for(user, project) or self.found.defaults.get(user, "")
        there = self.found.associations.get((account, user))
        if there is None or name in there.qos or "qos" not in self.conduct.enforces:
            return None
        return f"Slurm does not let {user} use the class {name} (its QOS {name}) in the account {account}."


class SlurmAccounts:
    """Threads may share it. What needs the accounting says nothing while that is away."""

    def __init__(self, slurm: Asks) -> None:
        self.slurm = slurm
        self.changing = threading.Lock()  # held by whoever makes a plan and carries it out
        self._picture: Picture | None = None
        self._next = 0.0
        self._looking: threading.Thread | None = None
        self._looked = threading.Event()  # once, with or without success
        self._shares_lock = threading.Lock()
        self._shares: tuple[float, tuple[Used, ...]] = (0.0, ())

    def look(self) -> Picture:
        """As it is now. Raises EngineUnavailable, Conflict."""
        conduct = read_conduct(self.slurm)
        self._picture = Picture(conduct, read_accounts(self.slurm, conduct.cluster))
        return self._picture

    def look_if_old(self) -> None:
        """Returns at once: the accounting may be slow or away while Slurm itself is not."""
        if time.monotonic() < self._next or (self._looking is not None and self._looking.is_alive()):
            return
        self._next = time.monotonic() + _OLD_SECONDS
        self._looking = threading.Thread(target=self._try_to_look, name="slurm-accounts", daemon=True)
        self._looking.start()

    def look_again(self) -> None:
        """Something was changed: what was seen before is old."""
        self._next = 0.0
        self._try_to_look()

    def _try_to_look(self) -> None:
        """An old picture is better than none."""
        try:
            self.look()
        except (HeliostatError, SlurmRefused) as error:
            log.info("slurm_accounts_unknown", error=str(error))
        except Exception:
            log.exception("slurm_accounts_unknown")
        finally:
            self._looked.set()

    def account_for(self, user: str, project: str) -> str | None:
        """The account of this project, if Slurm lets this user use it. Waits a while for the first look."""
        if self._looking is not None:
            self._looked.wait(_FIRST_SECONDS)
        return self._picture.account_for(user, project) if self._picture else None

    def refused_class(self, user: str, project: str, name: str) -> str | None:
        return self._picture.refused_class(user, project, name) if self._picture else None

    def places(self) -> frozenset[Place] | None:
        """Accounts, and users in them; None: not known."""
        return frozenset(self._picture.found.associations) if self._picture else None

    def used(self) -> tuple[Used, ...]:
        """Slurm's own count of what each has used, of some seconds ago; while it is away, the last."""
        with self._shares_lock:
            until, used = self._shares
            if time.monotonic() >= until:
                try:
                    used = tuple(parse_sshare(self.slurm.ask(_SSHARE)))
                except (HeliostatError, SlurmRefused) as error:
                    log.info("slurm_shares_unknown", error=str(error))
                self._shares = time.monotonic() + _SHARE_SECONDS, used
            return used
