"""Environments over HTTP."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from heliostat.api.account_schemas import ListResponse
from heliostat.api.request_context import AllUsersParam, CallerDep, ContextDep
from heliostat.api.request_schemas import EnvironmentBody, SingleLine, StrictInteger
from heliostat.services.environments import lifecycle as services
from heliostat.services.environments.lifecycle import EnvironmentView

router = APIRouter(tags=["environments"])
DigestPath = Annotated[str, Path(min_length=1, max_length=64, description="Or the beginning of it.")]


class BuildEnvironmentBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    environment: EnvironmentBody
    project: SingleLine | None = Field(default=None, description="Whose share its build uses.")


class PruneEnvironmentsBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    days: Annotated[StrictInteger, Field(ge=0, le=36_500, description="Since it was last used.")]


class EnvironmentResponse(BaseModel):
    digest: str
    kind: str
    python: str | None
    platform: str
    state: str = Field(description="waiting, building, ready or failed.")
    reason: str | None = Field(description="Why it failed.")
    shared: bool = Field(description="False: it is yours alone.")
    created_by: str
    created_at: datetime
    used_at: datetime | None
    size_bytes: int | None
    needed: bool = Field(description="By a job that is not over.")
    build_job: int
    folder: str | None = Field(description="On the nodes; null: it is not ready.")

    @classmethod
    def of(cls, shown: EnvironmentView) -> "EnvironmentResponse":
        return cls.model_validate(_facts(shown))


class EnvironmentDetailResponse(EnvironmentResponse):
    files: dict[str, str] = Field(description="What it is built from.")
    lock: str | None = Field(description="What was installed, exactly.")

    @classmethod
    def of(cls, shown: EnvironmentView) -> "EnvironmentDetailResponse":
        made = shown.environment
        return cls.model_validate({**_facts(shown), "files": dict(made.spec.files), "lock": made.lock})


class BuildLogResponse(BaseModel):
    text: str
    next_offset: int
    state: str


class RemovalResponse(BaseModel):
    digest: str
    gone: bool = Field(description="False: others have asked for it too, so it stays for them.")


class PruneResponse(BaseModel):
    count: int


def _facts(shown: EnvironmentView) -> dict[str, object]:
    one = shown.environment
    return {
        "digest": one.digest,
        "kind": one.spec.kind,
        "python": one.spec.python,
        "platform": one.platform,
        "state": shown.state.value,
        "reason": shown.reason,
        "shared": one.owner is None,
        "created_by": one.created_by,
        "created_at": one.created_at,
        "used_at": one.used_at,
        "size_bytes": one.size_bytes,
        "needed": shown.is_in_use,
        "build_job": one.build_job,
        "folder": str(shown.folder) if shown.folder else None,
    }


@router.get("/environments", summary="Yours, the one used last first; all=true, for admins: all")
def list_environments(
    caller: CallerDep, context: ContextDep, all_users: AllUsersParam = False
) -> ListResponse[EnvironmentResponse]:
    found = services.list_environments(context, caller, all_users=all_users)
    return ListResponse(items=[EnvironmentResponse.of(one) for one in found])


@router.post("/environments", status_code=201, summary="Have one built, unless it is there already")
def build_environment(
    body: BuildEnvironmentBody, caller: CallerDep, context: ContextDep
) -> EnvironmentDetailResponse:
    made = services.build_environment(context, caller, body.environment.to_environment_spec(), body.project)
    return EnvironmentDetailResponse.of(made)


@router.post("/environments/prune", summary="Remove what was not used for so many days; for admins")
def prune_environments(body: PruneEnvironmentsBody, caller: CallerDep, context: ContextDep) -> PruneResponse:
    return PruneResponse(count=services.prune_environments(context, caller, body.days))


@router.get("/environments/{digest}", summary="One, with its files and what was installed")
def show_environment(digest: DigestPath, caller: CallerDep, context: ContextDep) -> EnvironmentDetailResponse:
    return EnvironmentDetailResponse.of(services.show_environment(context, caller, digest))


@router.get("/environments/{digest}/log", summary="What its build has printed, from a byte on")
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


@router.delete("/environments/{digest}", summary="Take it from your list, and from the disk if nobody else has it")
def remove_environment(digest: DigestPath, caller: CallerDep, context: ContextDep) -> RemovalResponse:
    found = services.show_environment(context, caller, digest).environment.digest
    return RemovalResponse(digest=found, gone=services.remove_environment(context, caller, found))
