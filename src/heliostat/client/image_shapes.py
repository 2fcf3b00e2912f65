"""What the API answers of images, for type checkers; at run time these are plain dictionaries."""

from typing import TypedDict


class Push(TypedDict):
    """Of an image to a registry."""

    job_id: int
    target: str
    created_at: str
    state: str | None  # of its job
    reason: str | None
    pushed_digest: str | None  # what it is there


class Image(TypedDict, total=False):
    """One that somebody has built."""

    digest: str  # of what it is built from
    names: list[str]  # that mean it now
    built_as: str
    kind: str  # image, definition
    state: str  # waiting, building, ready, failed
    reason: str | None  # why it failed
    image_digest: str | None  # what containers say it is
    made_by: str
    created_at: str
    used_at: str | None
    size_bytes: int | None
    needed: bool  # by a job that is not over
    build_job: int
    files: dict[str, str]
    pushes: list[Push]
