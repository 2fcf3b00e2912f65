"""Who is told what, and how: made, listed, tried out and removed by those it concerns."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from heliostat.errors import Conflict, Forbidden, Invalid, NotFound, TooManyRequests, invalid_field
from heliostat.models import Caller, JobRequest, User
from heliostat.models.notices import OCCASIONS, Channel, Delivery, DeliveryState, Notice, NoticeId
from heliostat.notices.addresses import Undelivered, check_address, shown_address
from heliostat.notices.letters import compose
from heliostat.notices.sending import Sender, new_salt, secret_of
from heliostat.services.accounts.lookup import found_project
from heliostat.services.context import Context
from heliostat.services.rights import require_admin, write_as
from heliostat.store import notices as stored
from heliostat.store import people
from heliostat.store.database import Transaction

_TEST_SECONDS = 5.0  # between two tests of one notice


@dataclass(frozen=True, slots=True)
class Wish:
    channel: Channel
    address: str
    occasions: tuple[str, ...] = ("ended",)  # (): only of jobs that ask for it
    project: str | None = None  # of all its jobs; None: of one's own


@dataclass(frozen=True, slots=True)
class Shown:
    """A notice as people may see it."""

    notice: Notice
    address: str  # without what may be a secret
    waiting: int  # deliveries on their way
    given_up: int  # of the last month


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a test."""

    arrived: bool
    problem: str | None


def list_notices(context: Context, caller: Caller, *, everybodys: bool = False) -> list[Shown]:
    """One's own, and those of projects one manages; everybody's for admins."""
    if everybodys:
        require_admin(caller.user)
    with context.store.read() as conn:
        found = [one for one in stored.list_notices(conn) if everybodys or _concerns(caller.user, one)]
        counts = stored.count_deliveries(conn, [one.id for one in found])
    return [_shown(one, counts) for one in found]


def add_notice(context: Context, caller: Caller, wish: Wish) -> tuple[Shown, str | None]:
    """With the secret that signs it, which is told this once; None: it is not signed."""
    address = check_address(context.settings, wish.channel, wish.address)
    _check_occasions(wish)
    now = context.now()
    draft = Notice(
        0, caller.user.name, wish.project, wish.channel, address, wish.occasions, new_salt(), now, after_event=0
    )
    secret = secret_of(context.settings.home.notice_key, draft.salt) if wish.channel is Channel.WEBHOOK else None

    def change(tx: Transaction, actor: User) -> Notice:
        if wish.project is not None:
            _check_manages(actor, wish.project)
            found_project(tx, wish.project)
        most = context.settings.max_notices_per_user
        if len(stored.list_notices(tx.conn, actor.name)) >= most:
            raise Conflict(
                f"You have {most} notices, and may not have more.", "Remove one: helio notice remove ID."
            )
        made = stored.add_notice(tx, draft)
        people.add_audit(tx, caller, "notice.add", f"notice {made.id}", _audited(made), now)
        return made

    return _shown(write_as(context, caller, change), {}), secret


def remove_notice(context: Context, caller: Caller, notice_id: NoticeId) -> None:
    def change(tx: Transaction, actor: User) -> None:
        found = _found(stored.find_notice(tx.conn, notice_id), actor, notice_id)
        stored.remove_notice(tx, notice_id)
        people.add_audit(tx, caller, "notice.remove", f"notice {notice_id}", _audited(found), context.now())

    write_as(context, caller, change)


def try_notice(context: Context, caller: Caller, notice_id: NoticeId) -> Outcome:
    """Send a test at once, and say whether it arrived."""
    now = context.now()

    def change(tx: Transaction, actor: User) -> Notice:
        found = _found(stored.find_notice(tx.conn, notice_id), actor, notice_id)
        if found.tested_at is not None and _is_close(now, found.tested_at):
            raise TooManyRequests("It was tested a moment ago.", f"Try again in {_TEST_SECONDS:g} seconds.")
        stored.set_notice(tx, notice_id, tested_at=now)
        return found

    notice = write_as(context, caller, change)
    nothing = Delivery(str(uuid.uuid4()), notice_id, (), 0, DeliveryState.WAITING, now, now)
    letter = compose(notice, nothing, (), context.settings.public_url)
    try:
        Sender(context.settings).send(notice, letter, now)
    except Undelivered as error:
        return Outcome(False, error.problem)
    return Outcome(True, None)


def check_notify(context: Context, caller: Caller, requests: Sequence[JobRequest]) -> None:
    """Whoever wants to be told of a job has said where; a schedule goes on without."""
    if caller.via == "schedule" or not any(request.notify for request in requests):
        return
    with context.store.read() as conn:
        if stored.has_notices(conn, caller.user.name):
            return
    raise Invalid(
        "notify: you have not said yet where to tell you.",
        "First: helio notice add email|chat|webhook ADDRESS --asked-only.",
        fields={"notify": "you have no notices"},
    )


def _shown(one: Notice, counts: dict[tuple[NoticeId, DeliveryState], int]) -> Shown:
    waiting = counts.get((one.id, DeliveryState.WAITING), 0)
    given_up = counts.get((one.id, DeliveryState.GIVEN_UP), 0)
    return Shown(one, shown_address(one.channel, one.address), waiting, given_up)


def _concerns(user: User, notice: Notice) -> bool:
    if notice.user == user.name:
        return True
    return notice.project is not None and user.manages(notice.project)


def _found(notice: Notice | None, user: User, notice_id: NoticeId) -> Notice:
    """The same words whether it is not there or not theirs."""
    if notice is None or not (_concerns(user, notice) or user.is_admin):
        raise NotFound(f"There is no notice {notice_id} of yours.", "`helio notice list` lists them.")
    return notice


def _check_manages(user: User, project: str) -> None:
    if not user.manages(project):
        raise Forbidden(
            "Only a manager of a project, or an admin, may be told of all its jobs.",
            "Leave the project out to be told of your own.",
            fields={"project": "not one you manage"},
        )


def _check_occasions(wish: Wish) -> None:
    if unknown := [one for one in wish.occasions if one not in OCCASIONS]:
        raise invalid_field("occasions", f"{unknown[0][:40]!a} is not one of {', '.join(OCCASIONS)}")
    if wish.project is not None and not wish.occasions:
        raise invalid_field("occasions", "must name something: jobs ask for their owners only")


def _is_close(now: datetime, before: datetime) -> bool:
    return abs(now - before) < timedelta(seconds=_TEST_SECONDS)


def _audited(notice: Notice) -> dict[str, object]:
    return {
        "channel": notice.channel.value,
        "address": shown_address(notice.channel, notice.address),
        "project": notice.project,
        "occasions": list(notice.occasions),
    }
