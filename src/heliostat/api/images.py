"""Endpoints of container images that users build."""

from datetime import datetime
from typing import Annotated, Self

from fastapi import Path, Query
from pydantic import BaseModel, Field, SecretStr, StringConstraints, model_validator

from heliostat.api.account_schemas import ListResponse
from heliostat.api.environment_schemas import EnvironmentBody
from heliostat.api.environments import BuildLogResponse, RemovalResponse
from heliostat.api.field_types import SingleLine
from heliostat.api.request_bodies import BodyRouter, RequestBody
from heliostat.api.request_context import AllUsersParam, CallerDep, ContextDep
from heliostat.models.images import ImagePush
from heliostat.services.environments import images
from heliostat.services.environments import lifecycle as environments
from heliostat.services.environments.images import ImageBuildRequest, ImageView, RegistryLogin

router = BodyRouter(tags=["images"])
NamePath = Annotated[
    str, Path(min_length=1, max_length=200, description="NAME[:TAG], or the beginning of its digest.")
]
BuildFileText = Annotated[str, StringConstraints(min_length=1, max_length=256 * 1024, strict=True)]
ImageName = Annotated[str, StringConstraints(min_length=1, max_length=500, strict=True)]
UploadId = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$", strict=True)]


class ImageBody(RequestBody):
    """An image to build from one of containerfile, definition and environment; environment needs base."""

    name: ImageName = Field(description="NAME[:TAG] of the new image.")
    containerfile: BuildFileText | None = Field(default=None, description="Text of a Containerfile or Dockerfile.")
    definition: BuildFileText | None = Field(default=None, description="Text of an apptainer definition file.")
    environment: EnvironmentBody | None = Field(default=None, description="Packages to install on top of base.")
    base: ImageName | None = Field(default=None, description="Base image for environment.")
    upload: UploadId | None = Field(default=None, description="Uploaded build context.")
    project: SingleLine | None = Field(default=None, description="Project that the build job is charged to.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(source is not None for source in (self.containerfile, self.definition, self.environment)) != 1:
            raise ValueError("send one of containerfile, definition and environment")
        if (self.base is not None) != (self.environment is not None):
            raise ValueError("base and environment need each other")
        if self.environment is not None and self.upload is not None:
            raise ValueError("upload needs containerfile or definition")
        return self

    def to_image_request(self) -> ImageBuildRequest:
        software = None if self.environment is None else self.environment.to_environment_spec()
        return ImageBuildRequest(self.name, self.containerfile, self.definition, software, self.base, self.upload)


class PushImageBody(RequestBody):
    target: ImageName = Field(description="REGISTRY/NAME:TAG.")
    username: (
        Annotated[str, StringConstraints(min_length=1, max_length=200, pattern="^[^:\\x00-\\x1f]+$")] | None
    ) = None
    password: Annotated[SecretStr, Field(min_length=1, max_length=20_000)] | None = Field(
        default=None, description="Password or token. Used only for this push; not stored."
    )

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password need each other")
        return self

    def to_registry_login(self) -> RegistryLogin | None:
        if self.username is None or self.password is None:
            return None
        return RegistryLogin(self.username, self.password.get_secret_value())


class PushResponse(BaseModel):
    job_id: int
    target: str
    created_at: datetime
    state: str | None = Field(description="State of the push job.")
    reason: str | None
    pushed_digest: str | None = Field(description="Digest in the registry.")

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
    digest: str = Field(description="Digest of its source.")
    names: list[str] = Field(description="Names that currently refer to it.")
    built_as: str = Field(description="Name given at the build.")
    kind: str = Field(description="image, or definition (an apptainer file).")
    state: str = Field(description="waiting, building, ready or failed.")
    reason: str | None = Field(description="Why it failed.")
    image_digest: str | None = Field(description="Digest of the built image.")
    created_by: str
    created_at: datetime
    used_at: datetime | None
    size_bytes: int | None
    needed: bool = Field(description="Whether a job that has not ended needs it.")
    build_job: int

    @classmethod
    def of(cls, image: ImageView) -> "ImageResponse":
        return cls.model_validate(_fields(image))


class ImageDetailResponse(ImageResponse):
    files: dict[str, str] = Field(description="Its source files.")
    pushes: list[PushResponse] = Field(description="Newest first.")

    @classmethod
    def of(cls, image: ImageView) -> "ImageDetailResponse":
        files = dict(image.environment_view.environment.spec.files)
        pushes = [PushResponse.of(push) for push in image.pushes]
        return cls.model_validate({**_fields(image), "files": files, "pushes": pushes})


def _fields(image: ImageView) -> dict[str, object]:
    environment = image.environment_view.environment
    return {
        "digest": environment.digest,
        "names": list(image.names),
        "built_as": image.built_as,
        "kind": environment.spec.kind,
        "state": image.environment_view.state.value,
        "reason": image.environment_view.reason,
        "image_digest": image.image_digest,
        "created_by": environment.created_by,
        "created_at": environment.created_at,
        "used_at": environment.used_at,
        "size_bytes": environment.size_bytes,
        "needed": image.environment_view.is_in_use,
        "build_job": environment.build_job,
    }


@router.get("/images", summary="List your images, most recently used first; all=true: of all users (admins only)")
def list_images(
    caller: CallerDep, context: ContextDep, all_users: AllUsersParam = False
) -> ListResponse[ImageResponse]:
    return ListResponse(
        items=[ImageResponse.of(image) for image in images.list_images(context, caller, all_users=all_users)]
    )


@router.post("/images", status_code=201, summary="Build an image, unless it exists")
def build_image(body: ImageBody, caller: CallerDep, context: ContextDep) -> ImageDetailResponse:
    return ImageDetailResponse.of(images.build_image(context, caller, body.to_image_request(), body.project))


@router.get("/images/{name}", summary="Show an image with its files and pushes")
def show_image(name: NamePath, caller: CallerDep, context: ContextDep) -> ImageDetailResponse:
    return ImageDetailResponse.of(images.show_image(context, caller, name))


@router.get("/images/{name}/log", summary="Read the build log of an image from an offset in bytes")
def show_image_log(
    name: NamePath, caller: CallerDep, context: ContextDep, offset: Annotated[int, Query(ge=0, le=2**53)] = 0
) -> BuildLogResponse:
    view = images.show_image(context, caller, name).environment_view
    part = environments.read_build_log(context, caller, view.environment.digest, offset)
    text = part.data.decode("utf-8", "replace")
    return BuildLogResponse(text=text, next_offset=part.offset + len(part.data), state=view.state.value)


@router.post("/images/{name}/push", status_code=201, summary="Push an image to a registry, in a job")
def push_image(name: NamePath, body: PushImageBody, caller: CallerDep, context: ContextDep) -> PushResponse:
    return PushResponse.of(images.push_image(context, caller, name, body.target, body.to_registry_login()))


@router.delete("/images/{name}", summary="Remove an image; pushed copies stay")
def remove_image(name: NamePath, caller: CallerDep, context: ContextDep) -> RemovalResponse:
    digest = images.resolve_image_digest(context, caller, name)
    return RemovalResponse(digest=digest, gone=images.remove_image(context, caller, digest))
