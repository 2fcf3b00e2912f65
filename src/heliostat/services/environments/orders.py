"""Jobs that ask for an environment: the one there is, the one that is being built, or a build of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from heliostat.controller.environments import ready_folder
from heliostat.errors import Conflict, Invalid, NotFound
from heliostat.models import Caller, Dependency, Job, JobRequest, Rule
from heliostat.models.environments import (
    IMAGES,
    SHORTEST_PREFIX,
    Environment,
    EnvironmentState,
    Software,
    state_after,
)
from heliostat.services.context import Context
from heliostat.services.environments.building import (
    Builder,
    builder_for,
    decided,
    digest_for,
    draft_build,
    this_platform,
)
from heliostat.services.environments.contents import checked
from heliostat.services.environments.image_building import draft_image_build
from heliostat.store import environments as stored
from heliostat.store import moves
from heliostat.store.database import Transaction
from heliostat.store.environments import Kept

MOST_EACH = 1000  # environments one user may have asked for


@dataclass(frozen=True, slots=True)
class Order:
    """An environment as it would be made, and the job that would make it, but for its number."""

    environment: Environment
    build: Job
    is_tools: bool = False  # a job waits for it, but runs in another


@dataclass(frozen=True, slots=True)
class Served:
    environment: Environment
    waits_for: int | None  # a build that is not over; None: it is there


def take_order(context: Context, caller: Caller, asked: Software | str, job: tuple[str, str]) -> Order:
    """Check what can be checked before. `job` is the Unix user and the project of who asks. Raises Invalid."""
    unix_user, project = job
    if not context.engine.capabilities.equips:
        raise Invalid(
            f"The engine {context.engine.name} cannot build environments.",
            "Leave environment out.",
            fields={"environment": "not with this engine"},
        )
    user, software = caller.user.name, _software(context, caller, asked)
    is_image = software.kind in IMAGES  # which is built as the person
    builder = Builder(unix_user, user, None) if is_image else builder_for(context, user, unix_user)
    environment = Environment(
        digest=digest_for(software, builder),
        software=software,
        platform=this_platform(),
        owner=builder.owner,
        made_by=user,
        created_at=context.now(),
        build_job=0,
    )
    if is_image:
        build = draft_image_build(context, (user, unix_user, project), software, environment.digest)
    else:
        build = draft_build(context, (user, project), software, builder)
    return Order(environment, build)


def take_orders(
    context: Context, caller: Caller, requests: Sequence[JobRequest], drafts: Sequence[Job]
) -> dict[int, list[Order]]:
    """By the place of the request; those of the same contents share one."""
    orders: dict[tuple[Software | str, str], Order] = {}
    by_place: dict[int, list[Order]] = {}
    for place, (request, draft) in enumerate(zip(requests, drafts, strict=True)):
        asked = request.environment
        if request.tools is not None:
            tools = take_order(context, caller, request.tools, (draft.unix_user, draft.project))
            by_place[place] = [replace(tools, is_tools=True)]
        if asked is None:
            continue
        key = (asked, draft.project)
        if key not in orders:
            orders[key] = take_order(context, caller, asked, (draft.unix_user, draft.project))
        if (request.spec.image is not None) != (orders[key].environment.software.kind in IMAGES):
            raise Invalid(
                "An image brings its own software, so it takes no environment.",
                "Leave out one of the two.",
                fields={"environment": "not with an image"},
            )
        by_place.setdefault(place, []).append(orders[key])
    return by_place


def equip(
    context: Context, tx: Transaction, orders: Mapping[int, Sequence[Order]], groups: Sequence[Sequence[Job]]
) -> list[Job]:
    """The jobs of each request, which now wait for the build of what they need, if it is not there."""
    served = {place: [(order, serve(context, tx, order)) for order in some] for place, some in orders.items()}
    return [_equipped(job, served.get(place, ())) for place, group in enumerate(groups) for job in group]


def serve(context: Context, tx: Transaction, order: Order) -> Served:
    """Who asks for what is there, or is being built, gets that; one build at a time for each contents."""
    wanted, now = order.environment, context.now()
    kept = stored.find(tx.conn, wanted.digest)
    if kept is None:
        _check_count(tx, wanted.made_by)
    stored.note_use(tx, wanted.digest, wanted.made_by, now)
    if kept is not None and (state := state_after(kept.build_state)) is not EnvironmentState.FAILED:
        if state is not EnvironmentState.READY:
            return Served(kept.environment, kept.environment.build_job)
        if ready_folder(context.settings.home, wanted.digest) is not None:
            return Served(kept.environment, None)
    return _start_build(tx, order, now)


def _start_build(tx: Transaction, order: Order, now: datetime) -> Served:
    build = replace(order.build, id=tx.ids.draw("jobs")[0], submitted_at=now)
    environment = replace(order.environment, build_job=build.id, created_at=now)
    moves.add_jobs(tx, [build])
    stored.put(tx, environment)
    return Served(environment, build.id)


def _equipped(job: Job, served: Sequence[tuple[Order, Served]]) -> Job:
    for order, got in served:
        if not order.is_tools:
            job = replace(job, environment=got.environment.digest)
        wait = Dependency(got.waits_for, Rule.BUILT) if got.waits_for is not None else None
        if wait is not None and wait not in job.after:
            job = replace(job, after=(*job.after, wait), parents_left=job.parents_left + 1)
    return job


def _check_count(tx: Transaction, user: str) -> None:
    if stored.count_of(tx.conn, user) >= MOST_EACH:
        raise Conflict(
            f"You have {MOST_EACH} environments already.", "Remove some: helio env list, helio env remove."
        )


def _software(context: Context, caller: Caller, asked: Software | str) -> Software:
    if isinstance(asked, str):
        return found(context, caller, asked).environment.software
    return asked if asked.kind in IMAGES else decided(checked(asked, trusted_addresses(context)))


def trusted_addresses(context: Context) -> tuple[str, ...]:
    """The admins' own."""
    return tuple(value for value in context.settings.uv_variables.values() if "://" in value)


def found(context: Context, caller: Caller, digest: str) -> Kept:
    """By its digest or the beginning of it, among those the caller has asked for; for admins, among all."""
    wanted = digest.strip().lower()
    if len(wanted) < SHORTEST_PREFIX or not all(sign in "0123456789abcdef" for sign in wanted[:65]):
        raise Invalid(
            f"{digest[:70]!a} does not name an environment.",
            f"Write at least {SHORTEST_PREFIX} signs of its digest, as helio env list shows it.",
            fields={"environment": "not a digest"},
        )
    user = None if caller.user.is_admin else caller.user.name
    with context.store.read() as conn:
        all_found = stored.find_by_prefix(conn, wanted[:65], user)
    if not all_found:
        raise NotFound(f"You have no environment {wanted[:64]}.", "`helio env list` lists yours.")
    if len(all_found) > 1:
        raise Conflict(f"{wanted[:64]} names more than one environment.", "Write more of its digest.")
    return all_found[0]
