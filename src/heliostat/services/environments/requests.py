"""Environment requests of jobs: an existing environment, a running build, or a new build."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from heliostat.controller.environment_installation import find_environment_folder
from heliostat.errors import Conflict, Invalid, NotFound
from heliostat.models import Caller, Dependency, DependencyCondition, Job, JobRequest
from heliostat.models.environments import (
    IMAGE_ENVIRONMENT_KINDS,
    MIN_DIGEST_PREFIX,
    Environment,
    EnvironmentSpec,
    EnvironmentState,
    environment_state,
)
from heliostat.services.context import Context
from heliostat.services.environments.builds import (
    BuildIdentity,
    choose_build_identity,
    current_platform,
    digest_for_builder,
    draft_build_job,
    resolve_python,
)
from heliostat.services.environments.image_builds import draft_image_build_job
from heliostat.services.environments.spec_validation import validate_environment_spec
from heliostat.store import environments as stored
from heliostat.store import job_writes
from heliostat.store.database import Transaction
from heliostat.store.environments import StoredEnvironment

MAX_ENVIRONMENTS_PER_USER = 1000


@dataclass(frozen=True, slots=True)
class EnvironmentRequest:
    """A requested environment, and its build job without an id."""

    environment: Environment
    build_job: Job
    is_tools: bool = False  # the job waits for it, but runs in another environment


@dataclass(frozen=True, slots=True)
class ProvidedEnvironment:
    environment: Environment
    build_job_id: int | None  # the unfinished build; None: the environment is ready


def prepare_environment_request(
    context: Context, caller: Caller, spec_or_digest: EnvironmentSpec | str, job: tuple[str, str]
) -> EnvironmentRequest:
    """Make all checks that need no transaction. `job`: Unix user and project of the requesting job. Raises
    Invalid."""
    unix_user, project = job
    if not context.engine.capabilities.provides_environments:
        raise Invalid(
            f"The engine {context.engine.name} cannot build environments.",
            "Omit environment.",
            fields={"environment": "not supported by this engine"},
        )
    user, spec = caller.user.name, _resolve_spec(context, caller, spec_or_digest)
    is_image = spec.kind in IMAGE_ENVIRONMENT_KINDS  # built as the user
    builder = BuildIdentity(unix_user, user, None) if is_image else choose_build_identity(context, user, unix_user)
    environment = Environment(
        digest=digest_for_builder(spec, builder),
        spec=spec,
        platform=current_platform(),
        owner=builder.owner,
        created_by=user,
        created_at=context.now(),
        build_job=0,
    )
    if is_image:
        build = draft_image_build_job(context, (user, unix_user, project), spec, environment.digest)
    else:
        build = draft_build_job(context, (user, project), spec, builder)
    return EnvironmentRequest(environment, build)


def prepare_environment_requests(
    context: Context, caller: Caller, requests: Sequence[JobRequest], drafts: Sequence[Job]
) -> dict[int, list[EnvironmentRequest]]:
    """By the index of the request; requests with the same content share one."""
    requested: dict[tuple[EnvironmentSpec | str, str], EnvironmentRequest] = {}
    by_index: dict[int, list[EnvironmentRequest]] = {}
    for index, (request, draft) in enumerate(zip(requests, drafts, strict=True)):
        spec_or_digest = request.environment
        if request.tools is not None:
            tools = prepare_environment_request(context, caller, request.tools, (draft.unix_user, draft.project))
            by_index[index] = [replace(tools, is_tools=True)]
        if spec_or_digest is None:
            continue
        key = (spec_or_digest, draft.project)
        if key not in requested:
            requested[key] = prepare_environment_request(
                context, caller, spec_or_digest, (draft.unix_user, draft.project)
            )
        if (request.spec.image is not None) != (requested[key].environment.spec.kind in IMAGE_ENVIRONMENT_KINDS):
            raise Invalid(
                "An image contains its own software and cannot be combined with an environment.",
                "Omit one of the two.",
                fields={"environment": "not allowed with an image"},
            )
        by_index.setdefault(index, []).append(requested[key])
    return by_index


def attach_environments(
    context: Context,
    tx: Transaction,
    requested: Mapping[int, Sequence[EnvironmentRequest]],
    groups: Sequence[Sequence[Job]],
) -> list[Job]:
    """The jobs of each request, with a dependency on the build if their environment is not ready."""
    provided = {
        index: [
            (environment_request, provide_environment(context, tx, environment_request))
            for environment_request in needed
        ]
        for index, needed in requested.items()
    }
    return [
        _with_environments(job, provided.get(index, ())) for index, group in enumerate(groups) for job in group
    ]


def provide_environment(
    context: Context, tx: Transaction, environment_request: EnvironmentRequest
) -> ProvidedEnvironment:
    """The existing environment, its running build, or a new build: at most one build at a time per content."""
    prefix, now = environment_request.environment, context.now()
    existing = stored.find_environment(tx.conn, prefix.digest)
    if existing is None:
        _check_count(tx, prefix.created_by)
    stored.record_environment_use(tx, prefix.digest, prefix.created_by, now)
    if existing is not None and (state := environment_state(existing.build_state)) is not EnvironmentState.FAILED:
        if state is not EnvironmentState.READY:
            return ProvidedEnvironment(existing.environment, existing.environment.build_job)
        if find_environment_folder(context.settings.home, prefix.digest) is not None:
            return ProvidedEnvironment(existing.environment, None)
    return _start_build(tx, environment_request, now)


def _start_build(tx: Transaction, environment_request: EnvironmentRequest, now: datetime) -> ProvidedEnvironment:
    build = replace(environment_request.build_job, id=tx.ids.allocate("jobs")[0], submitted_at=now)
    environment = replace(environment_request.environment, build_job=build.id, created_at=now)
    job_writes.add_jobs(tx, [build])
    stored.put_environment(tx, environment)
    return ProvidedEnvironment(environment, build.id)


def _with_environments(job: Job, provided: Sequence[tuple[EnvironmentRequest, ProvidedEnvironment]]) -> Job:
    for environment_request, result in provided:
        if not environment_request.is_tools:
            job = replace(job, environment=result.environment.digest)
        wait = (
            Dependency(result.build_job_id, DependencyCondition.BUILT) if result.build_job_id is not None else None
        )
        if wait is not None and wait not in job.after:
            job = replace(job, after=(*job.after, wait), parents_left=job.parents_left + 1)
    return job


def _check_count(tx: Transaction, user: str) -> None:
    if stored.count_environments_of_user(tx.conn, user) >= MAX_ENVIRONMENTS_PER_USER:
        raise Conflict(
            f"You have {MAX_ENVIRONMENTS_PER_USER} environments, the maximum.",
            "Remove some: helio env list, helio env remove.",
        )


def _resolve_spec(context: Context, caller: Caller, spec_or_digest: EnvironmentSpec | str) -> EnvironmentSpec:
    if isinstance(spec_or_digest, str):
        return require_environment(context, caller, spec_or_digest).environment.spec
    return (
        spec_or_digest
        if spec_or_digest.kind in IMAGE_ENVIRONMENT_KINDS
        else resolve_python(validate_environment_spec(spec_or_digest, trusted_package_urls(context)))
    )


def trusted_package_urls(context: Context) -> tuple[str, ...]:
    """URLs that the admins have configured."""
    return tuple(value for value in context.settings.environments.uv_variables.values() if "://" in value)


def require_environment(context: Context, caller: Caller, digest: str) -> StoredEnvironment:
    """By its digest or a prefix of it, among those that the caller has requested; for admins, among all."""
    prefix = digest.strip().lower()
    if len(prefix) < MIN_DIGEST_PREFIX or not all(letter in "0123456789abcdef" for letter in prefix[:65]):
        raise Invalid(
            f"{digest[:70]!a} is not the digest of an environment.",
            f"Write at least {MIN_DIGEST_PREFIX} characters of the digest that helio env list shows.",
            fields={"environment": "not a digest"},
        )
    user = None if caller.user.is_admin else caller.user.name
    with context.store.read() as conn:
        matches = stored.find_environments_by_prefix(conn, prefix[:65], user)
    if not matches:
        raise NotFound(f"You have no environment {prefix[:64]}.", "`helio env list` lists yours.")
    if len(matches) > 1:
        raise Conflict(f"{prefix[:64]} matches more than one environment.", "Write more of the digest.")
    return matches[0]
