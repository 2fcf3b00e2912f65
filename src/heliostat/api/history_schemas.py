"""The body of requests about past jobs."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from heliostat.services.history import SacctText

Name = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class SacctBody(BaseModel):
    """What `sacct` printed, with its header."""

    model_config = ConfigDict(extra="forbid")

    text: str
    delimiter: Annotated[str, StringConstraints(min_length=1, max_length=40)] = "|"
    projects: Annotated[dict[Name, Name], Field(max_length=10_000)] = {}
    users: Annotated[dict[Name, Name], Field(max_length=10_000)] = {}

    def to_text(self) -> SacctText:
        return SacctText(self.text, self.delimiter, self.projects, self.users)
