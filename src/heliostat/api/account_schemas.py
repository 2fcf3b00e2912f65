"""Request and response schemas of users, projects, departments, tokens and the audit log."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, Field

from heliostat.api.request_bodies import Entries, RequestBody, described, without_null
from heliostat.api.time_fields import ZonedTime
from heliostat.models import AuditEntry, Caller, Department, Project, ProjectRole, Role, Token, TokenScope, User
from heliostat.services.accounts.data_classes import MAX_DATA_CLASS
from heliostat.services.accounts.projects import MAX_SHARE, ProjectOrDepartmentChange
from heliostat.services.accounts.quotas import QuotaChange

T = TypeVar("T")
GroupName = Annotated[str, described(pattern="^[a-z0-9][a-z0-9_.-]{0,62}$")]
UserName = Annotated[str, described(pattern="^[a-z_][a-z0-9_.-]{0,31}$")]
NewPassword = Annotated[str, described(minLength=10)]
StrictFlag = Annotated[bool, Field(strict=True)]
StrictInteger = Annotated[int, Field(strict=True)]
GpuLimit = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
GpuHoursLimit = Annotated[int, Field(strict=True, ge=0, le=1_000_000_000)]
ShareWeight = Annotated[int, Field(strict=True, ge=1, le=MAX_SHARE)]
DataClass = Annotated[int, Field(strict=True, ge=0, le=MAX_DATA_CLASS, description="0 open … 3 secret.")]


class LoginBody(RequestBody):
    name: str
    password: str


class TokenBody(RequestBody):
    name: Annotated[str, described(pattern="^[!-~]{1,64}$")]
    days: Annotated[StrictInteger, described(minimum=1, maximum=366)] | None = None
    scope: TokenScope = TokenScope.FULL


class UserBody(RequestBody):
    name: UserName
    role: Role = Role.USER
    unix_user: UserName | None = None
    password: NewPassword | None = None
    projects: Annotated[list[str], Entries(1000)] | None = Field(
        default=None, description="Default: only the default project."
    )


class QuotaBody(RequestBody):
    """Only given limits change; null removes a limit."""

    running_gpus: GpuLimit | None = Field(default=None, description="GPUs of running jobs.")
    queued_gpus: GpuLimit | None = Field(default=None, description="GPUs of all waiting and running jobs.")
    gpu_hours_per_month: GpuHoursLimit | None = None


class _QuotaChangeBody(RequestBody):
    quota: QuotaBody = QuotaBody()

    def quota_change(self) -> QuotaChange:
        return self.quota.model_dump(exclude_unset=True)


class UserChangeBody(_QuotaChangeBody):
    """Only given fields change; `unix_user: null` removes the Unix user."""

    role: Role | None = Field(default=None, json_schema_extra=without_null)
    active: StrictFlag | None = Field(default=None, json_schema_extra=without_null)
    unix_user: UserName | None = None


class OwnedWorkResponse(BaseModel):
    """Work that an account keeps going, all by id or name."""

    running_jobs: list[int]
    waiting_jobs: list[int]
    services: list[str]
    schedules: list[str]


class DepartmentChangeBody(_QuotaChangeBody):
    """Only given fields change."""

    share: ShareWeight | None = Field(
        default=None,
        description="Share of the cluster, relative to the other departments.",
        json_schema_extra=without_null,
    )


class ProjectChangeBody(_QuotaChangeBody):
    """Only given fields change; `closes_at: null` opens the project again."""

    share: ShareWeight | None = Field(
        default=None,
        description="Share of its department, relative to the other projects.",
        json_schema_extra=without_null,
    )
    data_class: DataClass | None = Field(default=None, json_schema_extra=without_null)
    department: GroupName | None = Field(default=None, json_schema_extra=without_null)
    closes_at: ZonedTime | None = Field(default=None, description="From then on it accepts no new jobs.")

    def project_change(self) -> ProjectOrDepartmentChange:
        reopen = "closes_at" in self.model_fields_set and self.closes_at is None
        return ProjectOrDepartmentChange(
            self.share, self.data_class, self.quota_change(), self.department, self.closes_at, reopen
        )


class PasswordBody(RequestBody):
    password: NewPassword
    current: str | None = None


class DepartmentBody(RequestBody):
    name: GroupName


class ProjectBody(RequestBody):
    name: GroupName
    department: GroupName


class MemberBody(RequestBody):
    role: ProjectRole = ProjectRole.MEMBER


class ListResponse(BaseModel, Generic[T]):
    items: list[T]
    next_cursor: str | None = None


class MembershipResponse(BaseModel):
    project: str
    role: ProjectRole


class QuotaResponse(BaseModel):
    """Null: no limit."""

    running_gpus: int | None
    queued_gpus: int | None
    gpu_hours_per_month: int | None


class UserResponse(BaseModel):
    name: str
    role: Role
    unix_user: str | None
    active: bool
    has_password: bool
    created_at: datetime
    memberships: list[MembershipResponse]
    quota: QuotaResponse

    @classmethod
    def of(cls, user: User) -> "UserResponse":
        return cls.model_validate(user, from_attributes=True)


class CallerResponse(BaseModel):
    """The caller and how they were authenticated."""

    user: UserResponse
    via: str
    address: str

    @classmethod
    def of(cls, caller: Caller) -> "CallerResponse":
        return cls.model_validate(caller, from_attributes=True)


class LoginLinkResponse(BaseModel):
    url: str
    expires_at: datetime


class LoginResponse(BaseModel):
    token: str
    id: int
    expires_at: datetime | None


class TokenResponse(BaseModel):
    id: int
    user: str
    name: str
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    scope: TokenScope

    @classmethod
    def of(cls, token: Token) -> "TokenResponse":
        return cls.model_validate(token, from_attributes=True)


class NewTokenResponse(TokenResponse):
    """The only response that contains the secret."""

    token: str

    @classmethod
    def of_new(cls, secret: str, token: Token) -> "NewTokenResponse":
        return cls(**TokenResponse.of(token).model_dump(), token=secret)


class DepartmentResponse(BaseModel):
    name: str
    share: int
    quota: QuotaResponse

    @classmethod
    def of(cls, department: Department) -> "DepartmentResponse":
        return cls.model_validate(department, from_attributes=True)


class MemberResponse(BaseModel):
    user: str
    role: ProjectRole


class ProjectResponse(BaseModel):
    name: str
    department: str
    share: int
    data_class: int
    closes_at: datetime | None = Field(description="From then on it accepts no new jobs. Null: it is open.")
    quota: QuotaResponse
    members: list[MemberResponse]
    note: str | None = Field(default=None, description="After a change: its effect on the jobs of the project.")

    @classmethod
    def of(cls, project: Project, note: str | None = None) -> "ProjectResponse":
        return cls(
            name=project.name,
            department=project.department,
            share=project.share,
            data_class=project.data_class,
            closes_at=project.closes_at,
            quota=QuotaResponse.model_validate(project.quota, from_attributes=True),
            members=[MemberResponse(user=user, role=role) for user, role in project.members],
            note=note,
        )


class AuditEntryResponse(BaseModel):
    id: int
    at: datetime
    user: str
    via: str
    address: str
    action: str
    target: str
    detail: Mapping[str, object]

    @classmethod
    def of(cls, entry: AuditEntry) -> "AuditEntryResponse":
        return cls.model_validate(entry, from_attributes=True)
