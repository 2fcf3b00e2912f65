"""The body that says with which code a job is submitted."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StringConstraints

from heliostat.models import JobRequest
from heliostat.models.records import MOST_DIFF_BYTES, MOST_UNTRACKED, Code, without_credentials


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    text.encode()  # what is no text cannot be stored; raises a ValueError
    return text


Text = Annotated[str, StringConstraints(max_length=4096, strict=True), AfterValidator(_storable)]

LongText = Annotated[str, StringConstraints(max_length=MOST_DIFF_BYTES, strict=True), AfterValidator(_storable)]


class CodeBody(BaseModel):
    """The state of the folder it is submitted from, as git tells it."""

    model_config = ConfigDict(extra="forbid")

    folder: Text | None = None
    commit: Annotated[str, StringConstraints(pattern="^[0-9a-f]{40,64}$", strict=True)] | None = None
    branch: Text | None = None
    remote: Text | None = None
    diff: Annotated[str, StringConstraints(max_length=MOST_DIFF_BYTES, strict=True), AfterValidator(_storable)] = (
        ""
    )
    is_diff_cut: StrictBool = False
    untracked: Annotated[list[Text], Field(max_length=MOST_UNTRACKED)] = []
    untracked_count: Annotated[int, Field(ge=0, le=2**53, strict=True)] = 0

    def to_code(self) -> Code:
        """A remote loses what may be a password, whoever forgot to take it out."""
        remote = None if self.remote is None else without_credentials(self.remote)
        values = self.model_dump() | {"remote": remote, "untracked": tuple(self.untracked)}
        return Code(**values)


ReadJob = Callable[[Mapping[str, object]], JobRequest]


def with_code(read_job: ReadJob, record: CodeBody | None) -> ReadJob:
    """Reads jobs that are all submitted with the same code."""
    code = None if record is None else record.to_code()
    return lambda body: replace(read_job(body), code=code)
