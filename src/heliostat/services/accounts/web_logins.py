"""Logging browsers in and out."""

from dataclasses import dataclass
from datetime import timedelta

from heliostat.auth.web import CODE_LASTS, LASTS, Browser, digest_of, new_secret, over
from heliostat.models import Caller, User, WebLogin
from heliostat.services.context import Context
from heliostat.services.rights import write_as
from heliostat.store import people, web_logins
from heliostat.store.database import Transaction

_MOST_LOGINS = 50
_REMEMBERED_FOR = timedelta(days=30)
_LONGEST_AGENT = 200


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a browser is."""

    address: str
    user_agent: str


def log_in(context: Context, name: str, password: str, origin: Origin) -> str:
    """The secret of a new cookie. Slower with every failure, like the API."""
    user = context.identities.by_password(name, password, origin.address)
    return _open(context, Caller(user, "password", origin.address), "password", origin)


def make_code(context: Context, caller: Caller) -> tuple[str, timedelta]:
    """A code that logs a browser in as the caller, once, and how long it is good for."""

    def change(tx: Transaction, actor: User) -> None:
        people.add_audit(tx, caller, "web.link", actor.name, {}, context.now())

    write_as(context, caller, change)
    return context.identities.web.new_code(caller.user.name), CODE_LASTS


def log_in_by_code(context: Context, code: str, origin: Origin) -> str:
    """The secret of a new cookie."""
    name = context.identities.web.redeem(code)
    with context.store.read() as conn:
        user = people.find_user(conn, name)
    if user is None:
        raise over()
    return _open(context, Caller(user, "link", origin.address), "link", origin)


def log_out(context: Context, browser: Browser) -> None:
    """Already out is success."""
    context.store.write(lambda tx: web_logins.end_login(tx, browser.login.id, context.now()))
    context.identities.web.forget()
    context.identities.grants.forget()


def log_out_everywhere(context: Context, caller: Caller) -> None:
    """All browsers of the caller, this one too."""

    def change(tx: Transaction, actor: User) -> None:
        web_logins.end_logins_of(tx, actor.name, context.now())
        people.add_audit(tx, caller, "web.logout", actor.name, {"everywhere": True}, context.now())

    write_as(context, caller, change)
    context.identities.web.drop_codes(caller.user.name)
    context.identities.web.forget()
    context.identities.grants.forget()


def _open(context: Context, caller: Caller, via: str, origin: Origin) -> str:
    secret, now = new_secret(), context.now()
    agent = "".join(letter for letter in origin.user_agent if letter.isprintable())[:_LONGEST_AGENT]

    def change(tx: Transaction, actor: User) -> None:
        web_logins.drop_dead_logins(tx, now - _REMEMBERED_FOR)
        for old in web_logins.open_logins(tx.conn, actor.name, now)[_MOST_LOGINS - 1 :]:
            web_logins.end_login(tx, old.id, now)
        login = WebLogin(0, actor.name, via, now, now + LASTS, now, agent, origin.address)
        web_logins.add_login(tx, login, digest_of(secret))
        people.add_audit(tx, caller, "web.login", actor.name, {"via": via}, now)

    write_as(context, caller, change)
    return secret
