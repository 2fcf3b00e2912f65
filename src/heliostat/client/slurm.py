"""The client's verbs on Slurm: its accounts, its other jobs and its past."""

from collections.abc import Mapping
from typing import TypedDict

from heliostat.client.transport import ApiResource

_MANY_STEPS_SECONDS = 900.0


class ForeignJob(TypedDict):
    """A job that went to Slurm without Heliostat."""

    id: str  # slurm:1234
    user: str
    name: str | None  # None: somebody else's
    state: str  # pending, running, suspended, completing
    reason: str | None
    cpus: int
    memory_mib: int
    gpus: int
    tasks: int  # of how many jobs it stands for: an array that waits is one line
    nodes: list[str]
    devices: list[str]
    submitted_at: str | None
    started_at: str | None
    time_limit_seconds: int | None
    cancel_command: str  # the command that ends it


class SlurmAccountsStep(TypedDict):
    sentence: str
    argv: list[str]


class SlurmAccountsPlan(TypedDict):
    cluster: str
    steps: list[SlurmAccountsStep]
    unmanaged: list[str]  # what is there and was not made by this Heliostat
    unsupported: list[str]  # what Slurm cannot do, or does not heed as it is set up


class HistoryImportResult(TypedDict):
    jobs: int  # new
    known: int  # brought in earlier
    skipped: dict[str, int]
    accounts: list[str]  # that were made, for names that had none


class Slurm(ApiResource):
    def plan_accounts(self) -> SlurmAccountsPlan:
        """What would be changed in Slurm to have its accounts as ours are. Admins only."""
        plan: SlurmAccountsPlan = self._transport.call("GET", "/slurm/plan", timeout_seconds=_MANY_STEPS_SECONDS)
        return plan

    def apply_accounts(self) -> SlurmAccountsPlan:
        """Change it, and say what was changed. May be repeated. Admins only."""
        done: SlurmAccountsPlan = self._transport.call(
            "POST", "/slurm/apply", {}, timeout_seconds=_MANY_STEPS_SECONDS
        )
        return done

    def list_foreign_jobs(self, *, node: str | None = None, limit: int | None = None) -> list[ForeignJob]:
        """Jobs that went to Slurm without Heliostat: those that run, then those that wait."""
        return self._items("/others", [("node", node or None), ("limit", limit or None)])

    def import_history(
        self,
        text: str,
        *,
        projects: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        delimiter: str = "|",
    ) -> HistoryImportResult:
        """Bring in past jobs of a Slurm cluster, as `sacct --parsable2` printed them with its header.

        `projects` says what Slurm's accounts are called here, `users` the same of people. Done again it changes
        nothing. Admins only.
        """
        body = {"text": text, "delimiter": delimiter, "projects": projects or {}, "users": users or {}}
        done: HistoryImportResult = self._transport.call("POST", "/history/slurm", body, may_repeat=True)
        return done
