"""Request schema of the source code of a job."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool, StringConstraints

from heliostat.api.request_bodies import Entries, RequestBody
from heliostat.models import JobRequest
from heliostat.models.provenance import MAX_DIFF_BYTES, MAX_UNTRACKED_FILES, SourceCode, remove_credentials


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a NUL character")
    text.encode()  # raises ValueError for text that cannot be stored
    return text


StorableText = Annotated[str, StringConstraints(max_length=4096, strict=True), AfterValidator(_storable)]


class SourceCodeBody(RequestBody):
    """The git state of the folder that a job is submitted from."""

    folder: StorableText | None = None
    commit: Annotated[str, StringConstraints(pattern="^[0-9a-f]{40,64}$", strict=True)] | None = None
    branch: StorableText | None = None
    remote: StorableText | None = None
    diff: Annotated[str, StringConstraints(max_length=MAX_DIFF_BYTES, strict=True), AfterValidator(_storable)] = ""
    is_diff_cut: StrictBool = False
    untracked: Annotated[list[StorableText], Entries(MAX_UNTRACKED_FILES)] = []
    untracked_count: Annotated[int, Field(ge=0, le=2**53, strict=True)] = 0

    def to_source_code(self) -> SourceCode:
        """Removes credentials from the URL of the remote."""
        remote = None if self.remote is None else remove_credentials(self.remote)
        values = self.model_dump() | {"remote": remote, "untracked": tuple(self.untracked)}
        return SourceCode(**values)


JobReader = Callable[[Mapping[str, object]], JobRequest]


def with_source_code(read_job: JobReader, record: SourceCodeBody | None) -> JobReader:
    """A reader for jobs that are submitted with the same code."""
    code = None if record is None else record.to_source_code()
    return lambda body: replace(read_job(body), code=code)
