"""An environment in the body of a request."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints, model_validator

from heliostat.models.environments import MOST_CHARACTERS, Software

File = Annotated[str, StringConstraints(min_length=1, max_length=MOST_CHARACTERS, strict=True)]


class EnvironmentBody(BaseModel):
    """Texts of files. One of requirements, pyproject and conda; uv_lock goes with pyproject."""

    model_config = ConfigDict(extra="forbid")

    requirements: File | None = None
    pyproject: File | None = None
    uv_lock: File | None = None
    conda: File | None = None
    python: Annotated[str, StringConstraints(min_length=1, max_length=10, strict=True)] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "EnvironmentBody":
        if sum(text is not None for text in (self.requirements, self.pyproject, self.conda)) != 1:
            raise ValueError("send one of requirements, pyproject and conda")
        if self.uv_lock is not None and self.pyproject is None:
            raise ValueError("uv_lock goes with pyproject")
        return self

    def software(self) -> Software:
        if self.requirements is not None:
            return Software("requirements", (("requirements.txt", self.requirements),), self.python)
        if self.conda is not None:
            return Software("conda", (("environment.yml", self.conda),), self.python)
        project = ("pyproject.toml", self.pyproject or "")
        if self.uv_lock is None:
            return Software("pyproject", (project,), self.python)
        return Software("uv", (project, ("uv.lock", self.uv_lock)), self.python)


Digest = Annotated[str, StringConstraints(min_length=1, max_length=64, strict=True)]
EnvironmentField = Digest | EnvironmentBody | None


def asked_software(given: EnvironmentField) -> Software | str | None:
    return given.software() if isinstance(given, EnvironmentBody) else given
