"""Client API for Slurm: account synchronization, foreign jobs and import of past jobs."""

from collections.abc import Mapping
from typing import TypedDict

from heliostat.client.transport import ApiResource

_MANY_STEPS_SECONDS = 900.0


class ForeignJob(TypedDict):
    """A job that was submitted to Slurm directly, without Heliostat."""

    id: str  # slurm:1234
    user: str
    name: str | None  # None: the job of another user
    state: str  # pending, running, suspended, completing
    reason: str | None
    cpus: int
    memory_mib: int
    gpus: int
    tasks: int  # number of jobs: a waiting array is one entry
    nodes: list[str]
    devices: list[str]
    submitted_at: str | None
    started_at: str | None
    time_limit_seconds: int | None
    cancel_command: str  # a shell command


class SlurmAccountsStep(TypedDict):
    sentence: str
    argv: list[str]


class SlurmAccountsPlan(TypedDict):
    cluster: str
    steps: list[SlurmAccountsStep]
    unmanaged: list[str]  # in Slurm, but not created by this Heliostat
    unsupported: list[str]  # not possible in Slurm, or not enforced by its configuration


class HistoryImportResult(TypedDict):
    jobs: int  # new
    known: int  # imported before
    skipped: dict[str, int]
    accounts: list[str]  # created for users without an account


class Slurm(ApiResource):
    def plan_accounts(self) -> SlurmAccountsPlan:
        """The changes that would make Slurm's accounts match those of Heliostat. Admins only."""
        plan: SlurmAccountsPlan = self._transport.call("GET", "/slurm/plan", timeout_seconds=_MANY_STEPS_SECONDS)
        return plan

    def apply_accounts(self) -> SlurmAccountsPlan:
        """Makes these changes and returns them. May be repeated. Admins only."""
        result: SlurmAccountsPlan = self._transport.call(
            "POST", "/slurm/apply", {}, timeout_seconds=_MANY_STEPS_SECONDS
        )
        return result

    def list_foreign_jobs(self, *, node: str | None = None, limit: int | None = None) -> list[ForeignJob]:
        """Jobs that were submitted to Slurm directly; running jobs first."""
        return self._items("/foreign-jobs", [("node", node or None), ("limit", limit or None)])

    def import_history(
        self,
        text: str,
        *,
        projects: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        delimiter: str = "|",
    ) -> HistoryImportResult:
        """Imports past jobs of a Slurm cluster from the output of `sacct --parsable2`, with its header.

        `projects` maps Slurm accounts to projects, `users` maps Unix users to users. A repeated import changes
        nothing. Admins only.
        """
        body = {"text": text, "delimiter": delimiter, "projects": projects or {}, "users": users or {}}
        result: HistoryImportResult = self._transport.call("POST", "/history/slurm", body, may_repeat=True)
        return result
