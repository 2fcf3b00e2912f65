"""Reservations: nodes or GPUs set aside for a project, or for maintenance, for a time.

All users see them; admins create and delete them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from heliostat.engines.contract import SupportsReservations
from heliostat.errors import Conflict, HeliostatError, Invalid, NotFound, invalid_field, safe_repr
from heliostat.models import Caller, Job, JobId, Node, Reservation, User
from heliostat.scheduling.feasibility import could_ever_run
from heliostat.scheduling.reservation_rules import FieldProblem, find_conflict, find_field_problem
from heliostat.services.accounts.required_accounts import check_entity_name
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin, write_as_caller
from heliostat.store import accounts
from heliostat.store import nodes as stored
from heliostat.store.database import Transaction

_MAX_LEAD_TIME = timedelta(days=5 * 366)


def create_reservation(context: Context, caller: Caller, requested: Reservation) -> Reservation:
    """A weekly reservation keeps its time of day in the cluster's time zone. A name can be used again once the
    reservation that had it has ended."""
    require_admin(caller.user)
    requested = replace(requested, time_zone=context.settings.server.effective_time_zone)
    check_entity_name(requested.name)
    nodes = {node.name: node for node in context.node_inventory.nodes()}
    _check_fields(requested, nodes, context.now())
    _check_with_engine(context, requested)

    def change(tx: Transaction, actor: User) -> Reservation:
        require_admin(actor)
        if requested.project is not None and accounts.find_project(tx.conn, requested.project) is None:
            raise invalid_field("project", f"there is no project {safe_repr(requested.project)}")
        others = [each for each in stored.list_reservations(tx.conn) if each.final_end_at > context.now()]
        if any(each.name == requested.name for each in others):
            raise Conflict(
                f"There is already a reservation {requested.name}.", "Choose another name, or delete it first."
            )
        if conflict := find_conflict(requested, others, nodes):
            raise _reserved_error(*conflict)
        stored.delete_reservation(tx, requested.name)
        stored.add_reservation(tx, requested)
        accounts.add_audit_entry(
            tx, caller, "reservation.create", requested.name, _audit_details(requested), context.now()
        )
        return requested

    created = write_as_caller(context, caller, change)
    if isinstance(context.engine, SupportsReservations):
        _reserve_in_engine(context, context.engine, caller, created)
    return created


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A running job on the nodes of a reservation that may still run when it begins."""

    id: JobId
    user: str
    nodes: tuple[str, ...]
    ends_at: datetime | None  # by its time limit; None: it has none, or may exceed it


def find_jobs_running_into(context: Context, reservation: Reservation) -> list[RunningJob]:
    """Jobs of the reservation's own project do not count."""
    starts_at, _ = next(reservation.occurrences(context.now()), (None, None))
    active, _ = context.controller.active_jobs_and_pending_count()
    found = []
    for job in sorted(active, key=lambda job: job.id):
        nodes = tuple(sorted({place.node for place in job.places} or {job.node or ""}))
        ends_at = _latest_end(job, context.now())
        is_own = reservation.project is not None and job.project == reservation.project
        if is_own or not set(nodes) & set(reservation.nodes) or starts_at is None:
            continue
        if ends_at is None or ends_at > starts_at:
            found.append(RunningJob(job.id, job.user, nodes, ends_at))
    return found


def _latest_end(job: Job, now: datetime) -> datetime | None:
    if job.time_limit_seconds is None or job.overtime:
        return None
    return (job.started_at or now) + timedelta(seconds=job.time_limit_seconds)


def list_reservations(context: Context, caller: Caller, *, past: bool = False) -> list[Reservation]:
    """Those that have not ended, sorted by their next start; with `past`, all."""
    now = context.now()
    with context.store.read() as conn:
        known = stored.list_reservations(conn)
    listed = [each for each in known if past or each.final_end_at > now]
    if isinstance(context.engine, SupportsReservations):
        listed = [each for each in listed if past or context.engine.has_reservation(each)]
        listed += [each for each in context.engine.foreign_reservations(known) if each.final_end_at > now]
    return sorted(listed, key=lambda each: (_next_start(each, now), each.name))


def delete_reservation(context: Context, caller: Caller, name: str) -> None:
    require_admin(caller.user)
    if isinstance(context.engine, SupportsReservations):
        _cancel_in_engine(context, context.engine, name)

    def change(tx: Transaction, actor: User) -> None:
        require_admin(actor)
        reservation = _require_reservation(tx.conn, name)
        stored.delete_reservation(tx, name)
        accounts.add_audit_entry(
            tx, caller, "reservation.delete", name, _audit_details(reservation), context.now()
        )

    write_as_caller(context, caller, change)


def _check_with_engine(context: Context, requested: Reservation) -> None:
    if isinstance(context.engine, SupportsReservations) and requested.gpus_per_node is not None:
        raise invalid_field("gpus_per_node", f"on {context.engine.name} only whole nodes can be reserved; omit it")


def _reserve_in_engine(
    context: Context, engine: SupportsReservations, caller: Caller, created: Reservation
) -> None:
    """If the engine refuses the reservation, it is deleted here too."""
    try:
        engine.reserve(created, _unix_users(context, created))
    except HeliostatError:
        write_as_caller(context, caller, lambda tx, actor: stored.delete_reservation(tx, created.name))
        raise


def _cancel_in_engine(context: Context, engine: SupportsReservations, name: str) -> None:
    """Called before the reservation is deleted from the store."""
    with context.store.read() as conn:
        stored_reservations = stored.list_reservations(conn)
        if any(each.name == name for each in engine.foreign_reservations(stored_reservations)):
            raise Conflict(
                f"The reservation {safe_repr(name)} was not created in Heliostat.",
                f"Delete it in {context.engine.name}.",
            )
        reservation = _require_reservation(conn, name)
    engine.cancel_reservation(reservation)


def _unix_users(context: Context, requested: Reservation) -> set[str]:
    """The Unix users of the project's members."""
    if requested.project is None:
        return set()
    with context.store.read() as conn:
        users = [user for user in accounts.list_users(conn) if user.active and user.unix_user]
    names = {
        user.unix_user or "" for user in users if any(m.project == requested.project for m in user.memberships)
    }
    if not names:
        raise invalid_field("project", f"no member of {safe_repr(requested.project)} can run jobs")
    return names


def _require_reservation(conn: Connection, name: str) -> Reservation:
    reservation = next((each for each in stored.list_reservations(conn) if each.name == name), None)
    if reservation is None:
        raise NotFound(f"There is no reservation {safe_repr(name)}.", "`helio reservation list --all` lists them.")
    return reservation


def _check_fields(requested: Reservation, nodes: Mapping[str, Node], now: datetime) -> None:
    if problem := find_field_problem(requested, nodes) or _find_distance_problem(requested, now):
        raise invalid_field(*problem)


def _find_distance_problem(requested: Reservation, now: datetime) -> FieldProblem | None:
    if requested.starts_at > now + _MAX_LEAD_TIME:
        return "starts_at", "is more than five years away"
    if requested.starts_at < now - _MAX_LEAD_TIME or requested.final_end_at <= now:
        return "ends_at", "is in the past"
    return None


def _reserved_error(node: Node, other: Reservation) -> Conflict:
    purpose = "for maintenance" if other.project is None else f"for project {other.project}"
    return Conflict(
        f"Node {node.name} is reserved {purpose} at that time, by the reservation {other.name}.",
        f"Choose another time or node, or delete it first: helio reservation delete {other.name}.",
    )


def _next_start(each: Reservation, now: datetime) -> datetime:
    return next((starts_at for starts_at, _ in each.occurrences(now)), each.starts_at)


def _audit_details(each: Reservation) -> dict[str, object]:
    return {
        "nodes": list(each.nodes),
        "project": each.project,
        "gpus_per_node": each.gpus_per_node,
        "starts_at": each.starts_at.isoformat(),
        "ends_at": each.ends_at.isoformat(),
        "weeks": each.weeks,
        "reason": each.reason,
        "time_zone": each.time_zone,
    }


def check_job_reservations(context: Context, caller: Caller, jobs: Sequence[Job]) -> None:
    """A reservation is for jobs of its project. Raises Invalid, with the reservations that the caller can use."""
    reserving = [job for job in jobs if job.placement.reservation is not None]
    if not reserving:
        return
    known = list_reservations(context, caller)
    distinct = {(job.placement.reservation, job.project, job.resources, job.placement): job for job in reserving}
    for job in distinct.values():
        named = next((each for each in known if each.name == job.placement.reservation), None)
        if named is None or named.project != job.project:
            raise _not_usable_error(caller, job, named, known)
        _check_could_run(context, job, named)


def _not_usable_error(
    caller: Caller, job: Job, named: Reservation | None, known: Sequence[Reservation]
) -> Invalid:
    name = safe_repr(job.placement.reservation or "")
    own_projects = {membership.project for membership in caller.user.memberships}
    usable = [f"{each.name} (project {each.project})" for each in known if each.project in own_projects]
    hint = f"You can use: {', '.join(usable)}." if usable else "You have no reservation to use now."
    if named is None:
        message, problem = f"There is no reservation {name}, or it has ended.", "does not exist"
    elif named.project is None:
        message, problem = f"The reservation {name} does not belong to a project.", "does not belong to a project"
    else:
        message = f"The reservation {name} is for project {named.project}, this job for {job.project}."
        problem = "is for another project"
    return Invalid(message, f"{hint} `helio reservation list` lists them.", fields={"reservation": problem})


def _check_could_run(context: Context, job: Job, named: Reservation) -> None:
    max_gpus = named.gpus_per_node
    if max_gpus is not None and job.resources.gpus > max_gpus:
        message = f"The reservation {named.name} has {max_gpus} GPUs per node."
        raise Invalid(
            message, "Request fewer GPUs.", fields={"gpus": f"must be at most {max_gpus} in this reservation"}
        )
    nodes = [node for node in context.node_inventory.nodes() if node.name in named.nodes]
    data_class = context.scheduling_rules.share_accounts().project_or_default(job.project).data_class
    if nodes and not could_ever_run(nodes, job.resources, job.placement, data_class):
        message = f"No node of the reservation {named.name} can run this job."
        hint = (
            f"Its nodes: {', '.join(named.nodes[:8])} (see helio node show). "
            "Request fewer resources, or submit the job without the reservation."
        )
        raise Invalid(message, hint, fields={"reservation": "its nodes have too few resources"})
