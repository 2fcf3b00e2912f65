"""Request schemas of jobs. Unknown fields are rejected."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, model_validator

from heliostat.api.environment_schemas import parse_environment_field
from heliostat.api.field_types import StrictInteger
from heliostat.api.job_field_types import Command, TimeOrInterval, array_length, byte_length, with_job_fields
from heliostat.api.request_bodies import Entries, RequestBody
from heliostat.api.source_code_schemas import SourceCodeBody
from heliostat.api.validation_errors import JOB_FIELDS_HINT
from heliostat.models import (
    DependencyCondition,
    JobRequest,
    JobSpec,
    ParentReference,
    PlacementRequest,
    TaskLayout,
)
from heliostat.models.dependencies import MAX_DEPENDENCIES_PER_REQUEST
from heliostat.models.job_fields import FIELD_ALIASES, JOB_FIELDS
from heliostat.models.jobs import parse_mount
from heliostat.models.provenance import SourceCode
from heliostat.models.retries import DEFAULT_RETRY_CAUSES, RetryPolicy

_MAX_ARGUMENTS = 1024 * 1024  # Linux allows 2 MiB of arguments and environment together
_MAX_MPI_TASKS = 1000  # their hosts are in one environment variable
_MAX_ARRAY_ELEMENTS = 100_000  # of all arrays in one request
_PARENTS = [name for one in JOB_FIELDS if one.kind == "parents" for name in (one.name, one.alias) if name]


@with_job_fields(JOB_FIELDS)
class JobBody(RequestBody):
    """A job to submit. Omitted fields have their default."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    fields_hint = JOB_FIELDS_HINT

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    @model_validator(mode="before")
    @classmethod
    def _no_duplicate_fields(cls, values: object) -> object:
        for alias, name in FIELD_ALIASES.items():
            if isinstance(values, dict) and alias in values and name in values:
                raise ValueError(f"{alias} and {name} are two names of the same field: send only one of them")
        return values

    @model_validator(mode="after")
    def _check_combinations(self) -> "JobBody":
        if not self.command and self.script is None:
            raise ValueError("command or script is required")
        if self.script is not None and isinstance(self.command, str):
            raise ValueError("with a script, command must be the list of its arguments")
        if isinstance(self.command, list) and self.script is None and not self.command[0].strip():
            raise ValueError("the first word of command is empty")
        if isinstance(self.command, list) and sum(byte_length(word) + 1 for word in self.command) > _MAX_ARGUMENTS:
            raise ValueError(f"command is larger than {_MAX_ARGUMENTS} bytes")
        if self.gpu_memory is not None and not self.gpus:
            raise ValueError("gpu_memory needs gpus: it is the memory of each GPU")
        if self.upload is not None and self.workdir is not None:
            raise ValueError("upload is the working directory: omit workdir")
        if self.template == "mpi" and self.tasks > _MAX_MPI_TASKS:
            raise ValueError(f"mpi can start at most {_MAX_MPI_TASKS} tasks")
        if not self.max_retries and (self.retry_on is not None or self.retry_delay):
            raise ValueError("retry_on and retry_delay need max_retries, such as 3")
        return self

    def to_request(self, default_code: SourceCode | None = None) -> JobRequest:
        parts: dict[str, dict[str, Any]] = {"": {}, "spec": {}, "placement": {}, "retry": {}}
        for name, part, attribute in _PATHS:
            value = getattr(self, name)
            parts[part][attribute] = _READ[name](value) if name in _READ else value
        return JobRequest(
            **parts[""],
            spec=JobSpec(**parts["spec"]),
            placement=PlacementRequest(**parts["placement"]),
            retry=RetryPolicy(**parts["retry"]),
            after=self._parents(),
            code=default_code if self.record is None else self.record.to_source_code(),
        )

    def _parents(self) -> tuple[ParentReference, ...]:
        by_condition = (
            (DependencyCondition.OK, self.after),
            (DependencyCondition.ANY, self.after_any),
            (DependencyCondition.FAILED, self.after_failed),
        )
        parents = [
            ParentReference(reference, condition)
            for condition, references in by_condition
            for reference in references
        ]
        return (
            *parents,
            *(ParentReference(reference, DependencyCondition.OK, each=True) for reference in self.after_each),
        )

    def fingerprint(self) -> str:
        """Identifies equal requests: all given fields except the git state of the code."""
        return repr([(name, getattr(self, name)) for name in sorted(self.model_fields_set - {"record"})])


_PATHS = [
    (field.name, *field.request_path.rpartition(".")[::2])
    for field in JOB_FIELDS
    if field.request_path is not None
]
_READ: dict[str, Callable[[Any], Any]] = {
    "command": lambda given: ("/bin/sh", "-c", given) if isinstance(given, str) else tuple(given),
    "layout": TaskLayout,
    "labels": lambda given: tuple(dict.fromkeys(given)),
    "mounts": lambda given: tuple(map(parse_mount, given)),
    "environment": parse_environment_field,
    "retry_on": lambda given: DEFAULT_RETRY_CAUSES if given is None else given,
}


def _not_too_many(jobs: object) -> object:
    """Limits array elements and parents before they are expanded: they could fill the memory."""
    bodies = [job for job in jobs if isinstance(job, dict)] if isinstance(jobs, list) else []
    parents = [value for job in bodies for name in _PARENTS if (value := job.get(name))]
    if (
        sum(len(names) if isinstance(names, list) else str(names).count(",") + 1 for names in parents)
        > MAX_DEPENDENCIES_PER_REQUEST
    ):
        raise ValueError(
            f"the jobs of one request can have at most {MAX_DEPENDENCIES_PER_REQUEST} dependencies in total"
        )
    arrays = [job.get("array") for job in bodies]
    if sum(array_length(array) for array in arrays if isinstance(array, str)) > _MAX_ARRAY_ELEMENTS:
        raise ValueError(f"all arrays together can have at most {_MAX_ARRAY_ELEMENTS} elements")
    return jobs


class StartForecastBody(JobBody):
    """A job to forecast, not to submit; its command is optional."""

    command: Command = Field(default=["true"], description="Only the job name derived from it matters.")


class BulkSubmitBody(RequestBody):
    fields_hint = JOB_FIELDS_HINT

    jobs: Annotated[list[JobBody], Entries(10_000, minimum=1), BeforeValidator(_not_too_many)]
    record: SourceCodeBody | None = Field(
        default=None, description="Git state of the code, for jobs without their own."
    )

    def to_requests(self) -> list[JobRequest]:
        code = None if self.record is None else self.record.to_source_code()
        return [job.to_request(code) for job in self.jobs]

    def fingerprint(self) -> str:
        return "\n".join(job.fingerprint() for job in self.jobs)


class CancelJobsBody(RequestBody):
    job_ids: Annotated[list[Annotated[StrictInteger, Field(ge=1, le=2**53)]], Entries(100_000)] = []
    array_id: Annotated[StrictInteger, Field(ge=1, le=2**53)] | None = None
    force: StrictBool = Field(default=False, description="Send KILL immediately, without a grace period.")


class KeepGpusBody(RequestBody):
    until: TimeOrInterval


class WaitForJobsBody(RequestBody):
    job_ids: Annotated[list[Annotated[StrictInteger, Field(ge=1, le=2**53)]], Entries(100_000)]
    timeout_seconds: Annotated[float, Field(ge=0, le=300, allow_inf_nan=False, strict=True)] = 30.0
