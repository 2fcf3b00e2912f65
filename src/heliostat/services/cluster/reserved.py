"""Jobs that name a reservation: whether they may run inside it, and ever could."""

from collections.abc import Sequence

from heliostat.errors import Invalid, printable
from heliostat.models import Caller, Job, Reservation
from heliostat.scheduling.fitting import could_ever_run
from heliostat.services.cluster.reservations import list_reservations
from heliostat.services.context import Context


def check_reservations(context: Context, caller: Caller, jobs: Sequence[Job]) -> None:
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
        _check_room(context, job, found)


def _not_for_it(caller: Caller, job: Job, found: Reservation | None, known: Sequence[Reservation]) -> Invalid:
    name = printable(job.placement.reservation or "")
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


def _check_room(context: Context, job: Job, found: Reservation) -> None:
    most = found.gpus_per_node
    if most is not None and job.resources.gpus > most:
        message = f"The reservation {found.name} has {most} GPUs on a node."
        raise Invalid(message, "Ask for fewer.", fields={"gpus": f"must be at most {most} in this reservation"})
    nodes = [node for node in context.fleet.nodes() if node.name in found.nodes]
    data_class = context.rules.accounts().project(job.project).data_class
    if nodes and not could_ever_run(nodes, job.resources, job.placement, data_class):
        message = f"No node of the reservation {found.name} could ever run this."
        hint = f"It has {', '.join(found.nodes[:8])}: see helio node show. Ask for less, or submit it without."
        raise Invalid(message, hint, fields={"reservation": "its nodes have too little"})
