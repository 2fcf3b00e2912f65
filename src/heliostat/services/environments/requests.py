"""Jobs that ask for an environment: the one there is, the one that is being built, or a build of its own."""

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
from heliostat.store import transitions
from heliostat.store.database import Transaction
from heliostat.store.environments import StoredEnvironment

MAX_ENVIRONMENTS_PER_USER = 1000  # environments one user may have asked for


@dataclass(frozen=True, slots=True)
class EnvironmentRequest:
    """An environment as it would be made, and the job that would make it, but for its number."""

    environment: Environment
    build_job: Job
    is_tools: bool = False  # a job waits for it, but runs in another


@dataclass(frozen=True, slots=True)
class ProvidedEnvironment:
    environment: Environment
    build_job_id: int | None  # a build that is not over; None: it is there


def prepare_environment_request(
    context: Context, caller: Caller, asked: EnvironmentSpec | str, job: tuple[str, str]
) -> EnvironmentRequest:
    """Check what can be checked before. `job` is the Unix user and the project of who asks. Raises Invalid."""
    unix_user, project = job
    if not context.engine.capabilities.provides_environments:
        raise Invalid(
            f"The engine {context.engine.name} cannot build environments.",
            "Leave environment out.",
            fields={"environment": "not with this engine"},
        )
    user, software = caller.user.name, _software(context, caller, asked)
    is_image = software.kind in IMAGE_ENVIRONMENT_KINDS  # which is built as the person
    builder = BuildIdentity(unix_user, user, None) if is_image else choose_build_identity(context, user, unix_user)
    environment = Environment(
        digest=digest_for_builder(software, builder),
        spec=software,
        platform=current_platform(),
        owner=builder.owner,
        created_by=user,
        created_at=context.now(),
        build_job=0,
    )
    if is_image:
        build = draft_image_build_job(context, (user, unix_user, project), software, environment.digest)
    else:
        build = draft_build_job(context, (user, project), software, builder)
    return EnvironmentRequest(environment, build)


def prepare_environment_requests(
    context: Context, caller: Caller, requests: Sequence[JobRequest], drafts: Sequence[Job]
) -> dict[int, list[EnvironmentRequest]]:
    """By the place of the request; those of the same contents share one."""
    orders: dict[tuple[EnvironmentSpec | str, str], EnvironmentRequest] = {}
    by_place: dict[int, list[EnvironmentRequest]] = {}
    for place, (request, draft) in enumerate(zip(requests, drafts, strict=True)):
        asked = request.environment
        if request.tools is not None:
            tools = prepare_environment_request(context, caller, request.tools, (draft.unix_user, draft.project))
            by_place[place] = [replace(tools, is_tools=True)]
        if asked is None:
            continue
        key = (asked, draft.project)
        if key not in orders:
            orders[key] = prepare_environment_request(context, caller, asked, (draft.unix_user, draft.project))
        if (request.spec.image is not None) != (orders[key].environment.spec.kind in IMAGE_ENVIRONMENT_KINDS):
            raise Invalid(
                "An image brings its own software, so it takes no environment.",
                "Leave out one of the two.",
                fields={"environment": "not with an image"},
            )
        by_place.setdefault(place, []).append(orders[key])
    return by_place


def attach_environments(
    context: Context,
    tx: Transaction,
    orders: Mapping[int, Sequence[EnvironmentRequest]],
    groups: Sequence[Sequence[Job]],
) -> list[Job]:
    """The jobs of each request, which now wait for the build of what they need, if it is not there."""
    served = {
        place: [(order, provide_environment(context, tx, order)) for order in some]
        for place, some in orders.items()
    }
    return [_equipped(job, served.get(place, ())) for place, group in enumerate(groups) for job in group]


def provide_environment(context: Context, tx: Transaction, order: EnvironmentRequest) -> ProvidedEnvironment:
    """Who asks for what is there, or is being built, gets that; one build at a time for each contents."""
    wanted, now = order.environment, context.now()
    kept = stored.find_environment(tx.conn, wanted.digest)
    if kept is None:
        _check_count(tx, wanted.created_by)
    stored.record_environment_use(tx, wanted.digest, wanted.created_by, now)
    if kept is not None and (state := environment_state(kept.build_state)) is not EnvironmentState.FAILED:
        if state is not EnvironmentState.READY:
            return ProvidedEnvironment(kept.environment, kept.environment.build_job)
        if find_environment_folder(context.settings.home, wanted.digest) is not None:
            return ProvidedEnvironment(kept.environment, None)
    return _start_build(tx, order, now)


def _start_build(tx: Transaction, order: EnvironmentRequest, now: datetime) -> ProvidedEnvironment:
    build = replace(order.build_job, id=tx.ids.allocate("jobs")[0], submitted_at=now)
    environment = replace(order.environment, build_job=build.id, created_at=now)
    transitions.add_jobs(tx, [build])
    stored.put_environment(tx, environment)
    return ProvidedEnvironment(environment, build.id)


def _equipped(job: Job, served: Sequence[tuple[EnvironmentRequest, ProvidedEnvironment]]) -> Job:
    for order, got in served:
        if not order.is_tools:
            job = replace(job, environment=got.environment.digest)
        wait = Dependency(got.build_job_id, DependencyCondition.BUILT) if got.build_job_id is not None else None
        if wait is not None and wait not in job.after:
            job = replace(job, after=(*job.after, wait), parents_left=job.parents_left + 1)
    return job


def _check_count(tx: Transaction, user: str) -> None:
    if stored.count_environments_of_user(tx.conn, user) >= MAX_ENVIRONMENTS_PER_USER:
        raise Conflict(
            f"You have {MAX_ENVIRONMENTS_PER_USER} environments already.",
            "Remove some: helio env list, helio env remove.",
        )


def _software(context: Context, caller: Caller, asked: EnvironmentSpec | str) -> EnvironmentSpec:
    if isinstance(asked, str):
        return require_environment(context, caller, asked).environment.spec
    return (
        asked
        if asked.kind in IMAGE_ENVIRONMENT_KINDS
        else resolve_python(validate_environment_spec(asked, trusted_package_urls(context)))
    )


def trusted_package_urls(context: Context) -> tuple[str, ...]:
    """The admins' own."""
    return tuple(value for value in context.settings.environments.uv_variables.values() if "://" in value)


def require_environment(context: Context, caller: Caller, digest: str) -> StoredEnvironment:
    """By its digest or the beginning of it, among those the caller has asked for; for admins, among all."""
    wanted = digest.strip().lower()
    if len(wanted) < MIN_DIGEST_PREFIX or not all(sign in "0123456789abcdef" for sign in wanted[:65]):
        raise Invalid(
            f"{digest[:70]!a} does not name an environment.",
            f"Write at least {MIN_DIGEST_PREFIX} signs of its digest, as helio env list shows it.",
            fields={"environment": "not a digest"},
        )
    user = None if caller.user.is_admin else caller.user.name
    with context.store.read() as conn:
        all_found = stored.find_environments_by_prefix(conn, wanted[:65], user)
    if not all_found:
        raise NotFound(f"You have no environment {wanted[:64]}.", "`helio env list` lists yours.")
    if len(all_found) > 1:
        raise Conflict(f"{wanted[:64]} names more than one environment.", "Write more of its digest.")
    return all_found[0]
