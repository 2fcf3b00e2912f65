"""Letting others into a session of one's own. Whoever comes in acts there as its owner."""

from heliostat.errors import Conflict, Forbidden, NotFound, invalid_field
from heliostat.models import Caller, Job, User
from heliostat.services.accounts.lookup import found_user
from heliostat.services.context import Context
from heliostat.services.rights import write_as
from heliostat.store import jobs as stored
from heliostat.store import people
from heliostat.store import sessions as kept
from heliostat.store.database import Transaction

MOST_GUESTS = 50


def share_session(context: Context, caller: Caller, job_id: int, guest: str) -> list[str]:
    """With one more person; everybody it is shared with. Only where each session has a host name, so an origin, of
    its own: otherwise a page inside it could use what the guest has open beside it."""
    if not context.addresses.has_own_hosts:
        raise Conflict(
            "Sessions can be shared only where each has a host name of its own.",
            'An admin can set that: proxy_url = "https://*.sessions.example.org".',
            code="no_own_hosts",
        )

    def change(tx: Transaction, actor: User) -> list[str]:
        job = _own_session(tx, actor, job_id)
        if job.is_over:
            raise Conflict(f"Session {job_id} is over.", "Start another: helio notebook.")
        user = found_user(tx, guest)
        if user.name == job.user:
            raise invalid_field("user", "it is yours already")
        if not user.active:
            raise invalid_field("user", f"the account {user.name} is deactivated")
        guests = {*kept.shared_with(tx.conn, job_id), user.name}
        if len(guests) > MOST_GUESTS:
            raise Conflict(f"It is shared with {MOST_GUESTS} people already.", "Take it back from some.")
        kept.add_share(tx, job_id, user.name, context.now())
        people.add_audit(tx, caller, "session.share", f"job {job_id}", {"user": user.name}, context.now())
        return sorted(guests)

    return write_as(context, caller, change)


def unshare_session(context: Context, caller: Caller, job_id: int, guest: str) -> list[str]:
    """Not with this person any more, who is shown out within seconds. Already gone is success."""

    def change(tx: Transaction, actor: User) -> list[str]:
        _own_session(tx, actor, job_id)
        guests = kept.shared_with(tx.conn, job_id)
        if guest in guests:
            kept.remove_share(tx, job_id, guest)
            people.add_audit(tx, caller, "session.unshare", f"job {job_id}", {"user": guest}, context.now())
        return [name for name in guests if name != guest]

    return write_as(context, caller, change)


def _own_session(tx: Transaction, actor: User, job_id: int) -> Job:
    """Not for managers and admins: it is not theirs to give."""
    job = stored.get_job(tx.conn, job_id)
    if job is None or kept.find_session(tx.conn, job_id) is None:
        raise NotFound(f"There is no session {job_id}.", "`helio session list` lists yours.")
    if job.user != actor.name:
        raise Forbidden(f"Session {job_id} is {job.user}'s.", f"Only {job.user} can share it.")
    return job
