"""Images that people build, over HTTP."""

from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, model_validator

from heliostat.api.account_schemas import ListResponse
from heliostat.api.environments import BuildLogResponse, RemovalResponse
from heliostat.api.request_context import AllUsersParam, CallerDep, ContextDep
from heliostat.api.request_schemas import EnvironmentBody, SingleLine
from heliostat.models.images import ImagePush
from heliostat.services.environments import images
from heliostat.services.environments import lifecycle as environments
from heliostat.services.environments.images import ImageBuildRequest, ImageView, RegistryLogin

router = APIRouter(tags=["images"])
NamePath = Annotated[
    str, Path(min_length=1, max_length=200, description="NAME[:TAG], or the beginning of its digest.")
]
BuildFileText = Annotated[str, StringConstraints(min_length=1, max_length=256 * 1024, strict=True)]
ImageName = Annotated[str, StringConstraints(min_length=1, max_length=500, strict=True)]
UploadId = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$", strict=True)]


class ImageBody(BaseModel):
    """One of containerfile, definition and environment, which goes with base."""

    model_config = ConfigDict(extra="forbid")

    name: ImageName = Field(description="NAME[:TAG], of your own.")
    containerfile: BuildFileText | None = Field(
        default=None, description="The text of a Containerfile or Dockerfile."
    )
    definition: BuildFileText | None = Field(
        default=None, description="The text of a definition file of apptainer."
    )
    environment: EnvironmentBody | None = Field(default=None, description="Packages to install on top of base.")
    base: ImageName | None = Field(default=None, description="The image to begin with.")
    upload: UploadId | None = Field(default=None, description="The folder it copies from.")
    project: SingleLine | None = Field(default=None, description="Whose share its build uses.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if sum(one is not None for one in (self.containerfile, self.definition, self.environment)) != 1:
            raise ValueError("send one of containerfile, definition and environment")
        if (self.base is not None) != (self.environment is not None):
            raise ValueError("base goes with environment")
        if self.environment is not None and self.upload is not None:
            raise ValueError("upload goes with containerfile or definition")
        return self

    def to_image_request(self) -> ImageBuildRequest:
        software = None if self.environment is None else self.environment.to_environment_spec()
        return ImageBuildRequest(self.name, self.containerfile, self.definition, software, self.base, self.upload)


class PushImageBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    target: ImageName = Field(description="REGISTRY/NAME:TAG.")
    username: (
        Annotated[str, StringConstraints(min_length=1, max_length=200, pattern="^[^:\\x00-\\x1f]+$")] | None
    ) = None
    password: Annotated[SecretStr, Field(min_length=1, max_length=20_000)] | None = Field(
        default=None, description="Or a token. Used for this push and kept nowhere."
    )

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password go together")
        return self

    def to_registry_login(self) -> RegistryLogin | None:
        if self.username is None or self.password is None:
            return None
        return RegistryLogin(self.username, self.password.get_secret_value())


class PushResponse(BaseModel):
    job_id: int
    target: str
    created_at: datetime
    state: str | None = Field(description="Of its job.")
    reason: str | None
    pushed_digest: str | None = Field(description="What it is at the registry.")

    @classmethod
    def of(cls, push: ImagePush) -> "PushResponse":
        return cls(
            job_id=push.job_id,
            target=push.target,
            created_at=push.created_at,
            state=push.state.value if push.state else None,
            reason=push.reason,
            pushed_digest=push.pushed_digest,
        )


class ImageResponse(BaseModel):
    digest: str = Field(description="Of what it is built from.")
    names: list[str] = Field(description="That mean it now.")
    built_as: str = Field(description="The name it was built as.")
    kind: str = Field(description="image, or definition: a file of apptainer.")
    state: str = Field(description="waiting, building, ready or failed.")
    reason: str | None = Field(description="Why it failed.")
    image_digest: str | None = Field(description="What containers say it is.")
    created_by: str
    created_at: datetime
    used_at: datetime | None
    size_bytes: int | None
    needed: bool = Field(description="By a job that is not over.")
    build_job: int

    @classmethod
    def of(cls, image: ImageView) -> "ImageResponse":
        return cls.model_validate(_facts(image))


class ImageDetailResponse(ImageResponse):
    files: dict[str, str] = Field(description="What it is built from.")
    pushes: list[PushResponse] = Field(description="The newest first.")

    @classmethod
    def of(cls, image: ImageView) -> "ImageDetailResponse":
        files = dict(image.environment_view.environment.spec.files)
        pushes = [PushResponse.of(push) for push in image.pushes]
        return cls.model_validate({**_facts(image), "files": files, "pushes": pushes})


def _facts(image: ImageView) -> dict[str, object]:
    one = image.environment_view.environment
    return {
        "digest": one.digest,
        "names": list(image.names),
        "built_as": image.built_as,
        "kind": one.spec.kind,
        "state": image.environment_view.state.value,
        "reason": image.environment_view.reason,
        "image_digest": image.image_digest,
        "created_by": one.created_by,
        "created_at": one.created_at,
        "used_at": one.used_at,
        "size_bytes": one.size_bytes,
        "needed": image.environment_view.is_in_use,
        "build_job": one.build_job,
    }


@router.get("/images", summary="Yours, the one used last first; all=true, for admins: all")
def list_images(
    caller: CallerDep, context: ContextDep, all_users: AllUsersParam = False
) -> ListResponse[ImageResponse]:
    return ListResponse(
        items=[ImageResponse.of(one) for one in images.list_images(context, caller, all_users=all_users)]
    )


@router.post("/images", status_code=201, summary="Have one built, unless it is there already")
def build_image(body: ImageBody, caller: CallerDep, context: ContextDep) -> ImageDetailResponse:
    return ImageDetailResponse.of(images.build_image(context, caller, body.to_image_request(), body.project))


@router.get("/images/{name}", summary="One, with its files and pushes")
def show_image(name: NamePath, caller: CallerDep, context: ContextDep) -> ImageDetailResponse:
    return ImageDetailResponse.of(images.show_image(context, caller, name))


@router.get("/images/{name}/log", summary="What its build has printed, from a byte on")
def show_image_log(
    name: NamePath, caller: CallerDep, context: ContextDep, offset: Annotated[int, Query(ge=0, le=2**53)] = 0
) -> BuildLogResponse:
    shown = images.show_image(context, caller, name).environment_view
    part = environments.read_build_log(context, caller, shown.environment.digest, offset)
    text = part.data.decode("utf-8", "replace")
    return BuildLogResponse(text=text, next_offset=part.offset + len(part.data), state=shown.state.value)


@router.post("/images/{name}/push", status_code=201, summary="Bring it to a registry, by a job")
def push_image(name: NamePath, body: PushImageBody, caller: CallerDep, context: ContextDep) -> PushResponse:
    return PushResponse.of(images.push_image(context, caller, name, body.target, body.to_registry_login()))


@router.delete("/images/{name}", summary="Remove it here; what was pushed stays")
def remove_image(name: NamePath, caller: CallerDep, context: ContextDep) -> RemovalResponse:
    digest = images.resolve_image_digest(context, caller, name)
    return RemovalResponse(digest=digest, gone=images.remove_image(context, caller, digest))
