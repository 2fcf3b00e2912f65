"""Account synchronization: the interface of engines with accounts of their own, such as Slurm."""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from heliostat.models import Department, Project, User

EngineMembership = tuple[str, str]  # an account of the engine, and a Unix user in it


@dataclass(frozen=True, slots=True)
class HeliostatAccounts:
    """Departments, projects and users of Heliostat, from which the accounts of the engine are derived."""

    departments: Sequence[Department]
    projects: Sequence[Project]
    users: Sequence[User]
    default_project: str
    urgent_gpu_hours: float


@dataclass(frozen=True, slots=True)
class AccountStep:
    """One change of the engine's accounts."""

    sentence: str
    argv: list[str]
    added_membership: EngineMembership | None = None
    removed_membership: EngineMembership | None = None


@dataclass(frozen=True, slots=True)
class AccountPlan:
    cluster: str
    steps: tuple[AccountStep, ...]
    unmanaged: tuple[str, ...]  # accounts of the engine that Heliostat did not create
    unsupported: tuple[str, ...]  # settings of Heliostat that the engine cannot express
    missing_users: int = 0  # which the engine does not have yet
    missing_projects: int = 0


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """Usage of an account, or of a user in it. The usage of an account includes all accounts below it."""

    account: str
    user: str  # "": the account itself
    parent: str  # the account above; "" for the root
    share_fraction: float  # its fraction of the parent's share
    raw_usage: float  # in the engine's own unit, with the engine's own decay
    gpu_hours: float


class AccountSync(Protocol):
    """Thread-safe."""

    def lock_changes(self) -> AbstractContextManager[None]:
        """Hold this lock from making a plan until it is applied."""

    def plan(self, ours: HeliostatAccounts, created: Collection[EngineMembership]) -> AccountPlan:
        """The changes that are needed. `created`: memberships that Heliostat has created in the engine.
        Raises EngineUnavailable, Conflict."""

    def apply_step(self, step: AccountStep) -> bool:
        """True if this call made the change, False if it was made already. Raises Conflict, or EngineUnavailable
        when the outcome is unknown."""

    def account_usage(self) -> Sequence[AccountUsage]:
        """Usage as counted by the engine, a few seconds old; while the engine is unavailable, the last known."""

    def account_name(self, kind: str, name: str) -> str:
        """The engine's account of a department or project."""
