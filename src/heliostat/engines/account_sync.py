"""Accounts that an engine keeps by itself, such as Slurm's: what is asked of it to have them as ours are."""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from heliostat.models import Department, Project, User

EngineMembership = tuple[str, str]  # an account of the engine, and a Unix user in it


@dataclass(frozen=True, slots=True)
class HeliostatAccounts:
    """What Heliostat has."""

    departments: Sequence[Department]
    projects: Sequence[Project]
    users: Sequence[User]
    default_project: str
    urgent_gpu_hours: float


@dataclass(frozen=True, slots=True)
class AccountStep:
    """One change."""

    sentence: str
    argv: list[str]
    added_membership: EngineMembership | None = None
    removed_membership: EngineMembership | None = None


@dataclass(frozen=True, slots=True)
class AccountPlan:
    cluster: str
    steps: tuple[AccountStep, ...]
    unmanaged: tuple[str, ...]  # what is there and not ours
    unsupported: tuple[str, ...]  # what the engine has no word for


@dataclass(frozen=True, slots=True)
class AccountUsage:
    """An account, or a user in it; what an account has used includes all below it."""

    account: str
    user: str  # "": the account itself
    parent: str  # the account above; "" for the root
    share_fraction: float  # of what is its parent's by right
    raw_usage: float  # what it has used, in the engine's own unit; the past fades as the engine is told to
    gpu_hours: float


class AccountSync(Protocol):
    """Threads may share it."""

    def lock_changes(self) -> AbstractContextManager[None]:
        """Held by whoever makes a plan and carries it out."""

    def plan(self, ours: HeliostatAccounts, made: Collection[EngineMembership]) -> AccountPlan:
        """What would be changed. `made`: the memberships that we have made. Raises EngineUnavailable, Conflict."""

    def apply_step(self, step: AccountStep) -> bool:
        """Already so is success, but not our doing: False. Raises Conflict, or EngineUnavailable when it is not
        known whether it is done."""

    def count_missing(self, ours: HeliostatAccounts) -> tuple[int, int]:
        """How many users and projects it does not have yet. Raises EngineUnavailable, Conflict."""

    def account_usage(self) -> Sequence[AccountUsage]:
        """The engine's own count, of some seconds ago; while it is away, the last."""

    def account_name(self, kind: str, name: str) -> str:
        """The account of a department or project."""
