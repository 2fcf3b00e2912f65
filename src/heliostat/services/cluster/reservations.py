"""Setting nodes aside for a time: for a project, or for nobody, which is maintenance.

Everybody sees them, to plan around them; admins make and delete them.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from heliostat.engines.contract import SupportsReservations
from heliostat.errors import Conflict, HeliostatError, Invalid, NotFound, invalid_field, safe_repr
from heliostat.models import Caller, Job, Node, Reservation, User
from heliostat.scheduling.feasibility import could_ever_run
from heliostat.services.accounts.lookup import check_entity_name
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin, write_as_caller
from heliostat.store import accounts
from heliostat.store import nodes as stored
from heliostat.store.database import Transaction

MAX_DURATION = timedelta(days=366)
MAX_WEEKS = 60
_FURTHEST = timedelta(days=5 * 366)
_WEEK = timedelta(weeks=1)


def create_reservation(context: Context, caller: Caller, wish: Reservation) -> Reservation:
    """Weekly ones take place at the same time of day in the cluster's zone. A name is free again once the
    reservation that had it is over."""
    require_admin(caller.user)
    wish = replace(wish, time_zone=context.settings.server.effective_time_zone)
    check_entity_name(wish.name)
    nodes = _named_nodes(context, wish)
    _check_times(wish, context.now())
    _check_gpus(wish, nodes)
    _check_with_engine(context, wish)

    def change(tx: Transaction, actor: User) -> Reservation:
        require_admin(actor)
        if wish.project is not None and accounts.find_project(tx.conn, wish.project) is None:
            raise invalid_field("project", f"there is no project {safe_repr(wish.project)}")
        others = [one for one in stored.list_reservations(tx.conn) if one.final_end_at > context.now()]
        if any(one.name == wish.name for one in others):
            raise Conflict(
                f"There is already a reservation {wish.name}.", "Choose another name, or delete it first."
            )
        _check_room(wish, [one for one in others if one.overlaps(wish)], nodes)
        stored.delete_reservation(tx, wish.name)
        stored.add_reservation(tx, wish)
        accounts.add_audit_entry(tx, caller, "reservation.create", wish.name, _told(wish), context.now())
        return wish

    made = write_as_caller(context, caller, change)
    if isinstance(context.engine, SupportsReservations):
        _reserve_there(context, context.engine, caller, made)
    return made


def list_reservations(context: Context, caller: Caller, *, past: bool = False) -> list[Reservation]:
    """Those not over yet, by their next start; with `past`, all."""
    now = context.now()
    with context.store.read() as conn:
        found = stored.list_reservations(conn)
    listed = [one for one in found if past or one.final_end_at > now]
    if isinstance(context.engine, SupportsReservations):
        listed = [one for one in listed if past or context.engine.has_reservation(one)]
        listed += [one for one in context.engine.foreign_reservations(found) if one.final_end_at > now]
    return sorted(listed, key=lambda one: (_next_start(one, now), one.name))


def delete_reservation(context: Context, caller: Caller, name: str) -> None:
    require_admin(caller.user)
    if isinstance(context.engine, SupportsReservations):
        _cancel_there(context, context.engine, name)

    def change(tx: Transaction, actor: User) -> None:
        require_admin(actor)
        found = _found(tx.conn, name)
        stored.delete_reservation(tx, name)
        accounts.add_audit_entry(tx, caller, "reservation.delete", name, _told(found), context.now())

    write_as_caller(context, caller, change)


def _check_with_engine(context: Context, wish: Reservation) -> None:
    if isinstance(context.engine, SupportsReservations) and wish.gpus_per_node is not None:
        raise invalid_field(
            "gpus_per_node", f"on {context.engine.name} only whole nodes can be set aside; leave it out"
        )


def _reserve_there(context: Context, engine: SupportsReservations, caller: Caller, made: Reservation) -> None:
    """What the engine does not take is not kept here either."""
    try:
        engine.reserve(made, _unix_users(context, made))
    except HeliostatError:
        write_as_caller(context, caller, lambda tx, actor: stored.delete_reservation(tx, made.name))
        raise


def _cancel_there(context: Context, engine: SupportsReservations, name: str) -> None:
    """Before it is forgotten here."""
    with context.store.read() as conn:
        ours = stored.list_reservations(conn)
        if any(one.name == name for one in engine.foreign_reservations(ours)):
            raise Conflict(f"The reservation {safe_repr(name)} was not made here.", "Delete it where it was made.")
        found = _found(conn, name)
    engine.cancel_reservation(found)


def _unix_users(context: Context, wish: Reservation) -> set[str]:
    """Whom the jobs of the project's members run as."""
    if wish.project is None:
        return set()
    with context.store.read() as conn:
        people_of = [user for user in accounts.list_users(conn) if user.active and user.unix_user]
    found = {
        user.unix_user or "" for user in people_of if any(one.project == wish.project for one in user.memberships)
    }
    if not found:
        raise invalid_field("project", f"nobody in {safe_repr(wish.project)} can run jobs")
    return found


def _found(conn: Connection, name: str) -> Reservation:
    found = next((one for one in stored.list_reservations(conn) if one.name == name), None)
    if found is None:
        raise NotFound(f"There is no reservation {safe_repr(name)}.", "`helio reservation list --all` lists them.")
    return found


def _named_nodes(context: Context, wish: Reservation) -> list[Node]:
    known = {node.name: node for node in context.node_inventory.nodes()}
    if not wish.nodes:
        raise invalid_field("nodes", "name at least one")
    for name in wish.nodes:
        if name not in known:
            raise invalid_field("nodes", f"there is no node {safe_repr(name)}")
    if len(set(wish.nodes)) != len(wish.nodes):
        raise invalid_field("nodes", "names a node twice")
    return [known[name] for name in wish.nodes]


def _check_times(wish: Reservation, now: datetime) -> None:
    length = wish.ends_at - wish.starts_at
    if length <= timedelta(0):
        raise invalid_field("ends_at", "must be after starts_at")
    if length > MAX_DURATION:
        raise invalid_field("ends_at", f"must be at most {MAX_DURATION.days} days after starts_at")
    if not 1 <= wish.weeks <= MAX_WEEKS:
        raise invalid_field("weeks", f"must be between 1 and {MAX_WEEKS}")
    if wish.weeks > 1 and length >= _WEEK:
        raise invalid_field("weeks", "only what is shorter than a week can take place every week")
    if wish.starts_at > now + _FURTHEST:
        raise invalid_field("starts_at", "is more than five years away")
    if wish.starts_at < now - _FURTHEST or wish.final_end_at <= now:
        raise invalid_field("ends_at", "is in the past")


def _check_gpus(wish: Reservation, nodes: Sequence[Node]) -> None:
    if wish.gpus_per_node is None:
        return
    if wish.gpus_per_node < 1:
        raise invalid_field("gpus_per_node", "must be at least 1; leave it out for whole nodes")
    for node in nodes:
        if len(node.devices) < wish.gpus_per_node:
            raise invalid_field("gpus_per_node", f"node {node.name} has only {len(node.devices)}")


def _check_room(wish: Reservation, others: Sequence[Reservation], nodes: Sequence[Node]) -> None:
    """A whole node can be set aside once at a time, its GPUs as many times as it has."""
    for node in nodes:
        there = [one for one in others if node.name in one.nodes]
        whole = [one for one in there if None in (one.gpus_per_node, wish.gpus_per_node)]
        if whole:
            raise _taken(node, whole[0])
        if there and _most_at_once(wish, there) > len(node.devices):
            raise _taken(node, there[0])


def _most_at_once(wish: Reservation, there: Sequence[Reservation]) -> int:
    """GPUs of one node, at the worst moment of the wish: one at which something begins."""
    together = (wish, *there)
    moments = {starts_at for one in together for starts_at, _ in one.occurrences(wish.starts_at)}
    return max(
        sum(one.gpus_per_node or 0 for one in together if one.is_active_at(moment))
        for moment in moments
        if wish.is_active_at(moment)
    )


def _taken(node: Node, other: Reservation) -> Conflict:
    whose = "for maintenance" if other.project is None else f"for project {other.project}"
    return Conflict(
        f"Node {node.name} is set aside {whose} at that time, by the reservation {other.name}.",
        f"Choose another time or node, or delete it first: helio reservation delete {other.name}.",
    )


def _next_start(one: Reservation, now: datetime) -> datetime:
    return next((starts_at for starts_at, _ in one.occurrences(now)), one.starts_at)


def _told(one: Reservation) -> dict[str, object]:
    return {
        "nodes": list(one.nodes),
        "project": one.project,
        "gpus_per_node": one.gpus_per_node,
        "starts_at": one.starts_at.isoformat(),
        "ends_at": one.ends_at.isoformat(),
        "weeks": one.weeks,
        "reason": one.reason,
        "time_zone": one.time_zone,
    }


def check_job_reservations(context: Context, caller: Caller, jobs: Sequence[Job]) -> None:
    """A reservation is for the jobs of its project. Raises Invalid, with those that may be used instead."""
    wishes = [job for job in jobs if job.placement.reservation is not None]
    if not wishes:
        return
    known = list_reservations(context, caller)
    asked = {(job.placement.reservation, job.project, job.resources, job.placement): job for job in wishes}
    for job in asked.values():
        found = next((one for one in known if one.name == job.placement.reservation), None)
        if found is None or found.project != job.project:
            raise _not_for_it(caller, job, found, known)
        _check_could_run(context, job, found)


def _not_for_it(caller: Caller, job: Job, found: Reservation | None, known: Sequence[Reservation]) -> Invalid:
    name = safe_repr(job.placement.reservation or "")
    mine = {membership.project for membership in caller.user.memberships}
    usable = [f"{one.name} (project {one.project})" for one in known if one.project in mine]
    hint = f"You can use: {', '.join(usable)}." if usable else "There is none that you can use now."
    if found is None:
        message, said = f"There is no reservation {name}, or it is over.", "is not known"
    elif found.project is None:
        message, said = f"The reservation {name} is for no project here.", "is for no project"
    else:
        message = f"The reservation {name} is for project {found.project}, this job for {job.project}."
        said = "is for another project"
    return Invalid(message, f"{hint} `helio reservation list` shows them.", fields={"reservation": said})


def _check_could_run(context: Context, job: Job, found: Reservation) -> None:
    most = found.gpus_per_node
    if most is not None and job.resources.gpus > most:
        message = f"The reservation {found.name} has {most} GPUs on a node."
        raise Invalid(message, "Ask for fewer.", fields={"gpus": f"must be at most {most} in this reservation"})
    nodes = [node for node in context.node_inventory.nodes() if node.name in found.nodes]
    data_class = context.scheduling_rules.share_accounts().project_or_default(job.project).data_class
    if nodes and not could_ever_run(nodes, job.resources, job.placement, data_class):
        message = f"No node of the reservation {found.name} could ever run this."
        hint = f"It has {', '.join(found.nodes[:8])}: see helio node show. Ask for less, or submit it without."
        raise Invalid(message, hint, fields={"reservation": "its nodes have too little"})
