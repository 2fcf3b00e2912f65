"""Accounts and permissions: department > project > user, quotas, tokens and logins."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Role(StrEnum):
    USER = "user"
    ADMIN = "admin"


class ProjectRole(StrEnum):
    MEMBER = "member"
    MANAGER = "manager"


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits on GPUs; None: no limit."""

    running_gpus: int | None = None  # at the same time
    queued_gpus: int | None = None  # of unfinished jobs
    gpu_hours_per_month: int | None = None


@dataclass(frozen=True, slots=True)
class Department:
    name: str
    share: int = 1  # of the cluster, relative to the other departments
    quota: Quota = Quota()


@dataclass(frozen=True, slots=True)
class Membership:
    project: str
    role: ProjectRole


@dataclass(frozen=True, slots=True)
class Project:
    name: str
    department: str
    members: tuple[tuple[str, ProjectRole], ...] = ()
    share: int = 1  # of its department, relative to the other projects
    quota: Quota = Quota()
    data_class: int = 0  # sensitivity of its data: 0 open … 3 secret
    closes_at: datetime | None = None  # from then on it accepts no new jobs

    def is_closed(self, now: datetime) -> bool:
        return self.closes_at is not None and self.closes_at <= now


@dataclass(frozen=True, slots=True)
class User:
    """A person. `unix_user` is the Unix user of their jobs; None: they cannot run jobs."""

    name: str
    role: Role
    unix_user: str | None
    active: bool
    created_at: datetime
    memberships: tuple[Membership, ...] = ()
    has_password: bool = False
    quota: Quota = Quota()

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN

    def may_manage(self, project: str) -> bool:
        return self.is_admin or Membership(project, ProjectRole.MANAGER) in self.memberships

    def is_member_of(self, project: str) -> bool:
        return any(membership.project == project for membership in self.memberships)


class TokenScope(StrEnum):
    """What a token may be used for, within the permissions of its user."""

    READ = "read"
    SUBMIT = "submit"  # also submit and control jobs, services and what they need
    METRICS = "metrics"  # only monitoring
    ALERTS = "alerts"  # only reporting the alerts of Prometheus
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Token:
    """A personal token as listed; the secret itself is shown once, at creation."""

    id: int
    user: str
    name: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    scope: TokenScope = TokenScope.FULL


@dataclass(frozen=True, slots=True)
class WebLogin:
    """A browser that is logged in; the secret itself is only in its cookie."""

    id: int
    user: str
    via: str  # password, link
    created_at: datetime
    expires_at: datetime
    seen_at: datetime
    user_agent: str
    address: str
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated user. `via` is the method: `socket`, `token`, `password`, `web` (a logged-in browser), or
    `live` (a page in such a browser that refreshes automatically).
    """

    user: User
    via: str
    address: str
