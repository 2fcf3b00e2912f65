"""Endpoints of software environments: build, list, show, build log, remove, prune."""

from datetime import datetime
from typing import Annotated

from fastapi import Path, Query
from pydantic import BaseModel, Field

from heliostat.api.account_schemas import ListResponse
from heliostat.api.environment_schemas import EnvironmentBody
from heliostat.api.field_types import SingleLine, StrictInteger
from heliostat.api.request_bodies import BodyRouter, RequestBody
from heliostat.api.request_context import AllUsersParam, CallerDep, ContextDep
from heliostat.services.environments import lifecycle as services
from heliostat.services.environments.lifecycle import EnvironmentView

router = BodyRouter(tags=["environments"])
DigestPath = Annotated[
    str,
    Path(
        min_length=1,
        max_length=64,
        description="The digest or its beginning.",
        json_schema_extra={"pattern": "^[0-9a-f]{8,64}$"},
    ),
]


class BuildEnvironmentBody(RequestBody):
    environment: EnvironmentBody
    project: SingleLine | None = Field(default=None, description="Project that the build job belongs to.")


class PruneEnvironmentsBody(RequestBody):
    days: Annotated[StrictInteger, Field(ge=0, le=36_500, description="Days since the last use.")]


class EnvironmentResponse(BaseModel):
    digest: str
    kind: str
    python: str | None
    platform: str
    state: str = Field(description="waiting, building, ready or failed.")
    reason: str | None = Field(description="Why the build failed.")
    shared: bool = Field(description="False: only you can use it.")
    created_by: str
    created_at: datetime
    used_at: datetime | None
    size_bytes: int | None
    needed: bool = Field(description="Whether a waiting or running job uses it.")
    build_job: int
    folder: str | None = Field(description="Folder on the nodes; null: it is not ready.")

    @classmethod
    def of(cls, view: EnvironmentView) -> "EnvironmentResponse":
        return cls.model_validate(_fields(view))


class EnvironmentDetailResponse(EnvironmentResponse):
    files: dict[str, str] = Field(description="Files that it is built from.")
    lock: str | None = Field(description="Exact versions of the installed packages.")

    @classmethod
    def of(cls, view: EnvironmentView) -> "EnvironmentDetailResponse":
        environment = view.environment
        return cls.model_validate(
            {**_fields(view), "files": dict(environment.spec.files), "lock": environment.lock}
        )


class BuildLogResponse(BaseModel):
    text: str
    next_offset: int
    state: str


class RemovalResponse(BaseModel):
    digest: str
    gone: bool = Field(description="False: it stays on disk because other users requested it too.")


class PruneResponse(BaseModel):
    count: int


def _fields(view: EnvironmentView) -> dict[str, object]:
    environment = view.environment
    return {
        "digest": environment.digest,
        "kind": environment.spec.kind,
        "python": environment.spec.python,
        "platform": environment.platform,
        "state": view.state.value,
        "reason": view.reason,
        "shared": environment.owner is None,
        "created_by": environment.created_by,
        "created_at": environment.created_at,
        "used_at": environment.used_at,
        "size_bytes": environment.size_bytes,
        "needed": view.is_in_use,
        "build_job": environment.build_job,
        "folder": str(view.folder) if view.folder else None,
    }


@router.get(
    "/environments", summary="List your environments, last used first; all=true: of all users (admins only)"
)
def list_environments(
    caller: CallerDep, context: ContextDep, all_users: AllUsersParam = False
) -> ListResponse[EnvironmentResponse]:
    environments = services.list_environments(context, caller, all_users=all_users)
    return ListResponse(items=[EnvironmentResponse.of(view) for view in environments])


@router.post("/environments", status_code=201, summary="Build an environment, unless it exists already")
def build_environment(
    body: BuildEnvironmentBody, caller: CallerDep, context: ContextDep
) -> EnvironmentDetailResponse:
    view = services.build_environment(context, caller, body.environment.to_environment_spec(), body.project)
    return EnvironmentDetailResponse.of(view)


@router.post("/environments/prune", summary="Remove environments not used for a number of days (admins only)")
def prune_environments(body: PruneEnvironmentsBody, caller: CallerDep, context: ContextDep) -> PruneResponse:
    return PruneResponse(count=services.prune_environments(context, caller, body.days))


@router.get("/environments/{digest}", summary="Show an environment, its files and installed packages")
def show_environment(digest: DigestPath, caller: CallerDep, context: ContextDep) -> EnvironmentDetailResponse:
    return EnvironmentDetailResponse.of(services.show_environment(context, caller, digest))


@router.get("/environments/{digest}/log", summary="Read the build log from an offset in bytes")
def environment_log(
    digest: DigestPath,
    caller: CallerDep,
    context: ContextDep,
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> BuildLogResponse:
    state = services.show_environment(context, caller, digest).state
    part = services.read_build_log(context, caller, digest, offset)
    text = part.data.decode("utf-8", "replace")
    return BuildLogResponse(text=text, next_offset=part.offset + len(part.data), state=state.value)


@router.delete(
    "/environments/{digest}", summary="Remove an environment; its files stay if other users requested it too"
)
def remove_environment(digest: DigestPath, caller: CallerDep, context: ContextDep) -> RemovalResponse:
    full_digest = services.show_environment(context, caller, digest).environment.digest
    return RemovalResponse(digest=full_digest, gone=services.remove_environment(context, caller, full_digest))
