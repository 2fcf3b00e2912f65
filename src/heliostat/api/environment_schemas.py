"""Request schema of a software environment: the texts of its files."""

from typing import Annotated

from pydantic import StringConstraints, model_validator

from heliostat.api.request_bodies import RequestBody
from heliostat.models.environments import MAX_ENVIRONMENT_CHARACTERS, EnvironmentSpec

FileText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ENVIRONMENT_CHARACTERS, strict=True)]


class EnvironmentBody(RequestBody):
    """Texts of files: one of requirements, pyproject and conda. uv_lock needs pyproject."""

    requirements: FileText | None = None
    pyproject: FileText | None = None
    uv_lock: FileText | None = None
    conda: FileText | None = None
    python: Annotated[str, StringConstraints(min_length=1, max_length=10, strict=True)] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "EnvironmentBody":
        if sum(text is not None for text in (self.requirements, self.pyproject, self.conda)) != 1:
            raise ValueError("send one of requirements, pyproject and conda")
        if self.uv_lock is not None and self.pyproject is None:
            raise ValueError("uv_lock needs pyproject")
        return self

    def to_environment_spec(self) -> EnvironmentSpec:
        if self.requirements is not None:
            return EnvironmentSpec("requirements", (("requirements.txt", self.requirements),), self.python)
        if self.conda is not None:
            return EnvironmentSpec("conda", (("environment.yml", self.conda),), self.python)
        project = ("pyproject.toml", self.pyproject or "")
        if self.uv_lock is None:
            return EnvironmentSpec("pyproject", (project,), self.python)
        return EnvironmentSpec("uv", (project, ("uv.lock", self.uv_lock)), self.python)


Digest = Annotated[str, StringConstraints(min_length=1, max_length=64, strict=True)]
EnvironmentField = Digest | EnvironmentBody | None


def parse_environment_field(given: EnvironmentField) -> EnvironmentSpec | str | None:
    return given.to_environment_spec() if isinstance(given, EnvironmentBody) else given
