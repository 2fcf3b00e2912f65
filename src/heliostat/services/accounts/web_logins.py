"""Browser logins: by password, by one-time code, and logout."""

from dataclasses import dataclass
from datetime import timedelta

from heliostat.auth.web_logins import (
    LOGIN_CODE_LIFETIME,
    LOGIN_LIFETIME,
    LoggedInBrowser,
    generate_secret,
    not_logged_in_error,
    secret_digest,
)
from heliostat.models import Caller, User, WebLogin
from heliostat.services.context import Context
from heliostat.services.permissions import write_as_caller
from heliostat.store import accounts, web_logins
from heliostat.store.database import Transaction

_MAX_LOGINS = 50
_REMEMBERED_FOR = timedelta(days=30)
_MAX_AGENT_LENGTH = 200


@dataclass(frozen=True, slots=True)
class BrowserClient:
    """Address and user agent of a browser."""

    address: str
    user_agent: str


def log_in_browser(context: Context, name: str, password: str, origin: BrowserClient) -> str:
    """The secret of a new cookie. Delayed after failures, like logins by the API."""
    user = context.authenticator.authenticate_password(name, password, origin.address)
    return _create_login(context, Caller(user, "password", origin.address), "password", origin)


def create_login_code(context: Context, caller: Caller) -> tuple[str, timedelta]:
    """A code that logs a browser in as the caller, once, and its lifetime."""

    def change(tx: Transaction, actor: User) -> None:
        accounts.add_audit_entry(tx, caller, "web.link", actor.name, {}, context.now())

    write_as_caller(context, caller, change)
    return context.authenticator.web_logins.create_code(caller.user.name), LOGIN_CODE_LIFETIME


def log_in_browser_by_code(context: Context, code: str, origin: BrowserClient) -> str:
    """The secret of a new cookie."""
    name = context.authenticator.web_logins.redeem_code(code)
    with context.store.read() as conn:
        user = accounts.find_user(conn, name)
    if user is None:
        raise not_logged_in_error()
    return _create_login(context, Caller(user, "link", origin.address), "link", origin)


def log_out_browser(context: Context, browser: LoggedInBrowser) -> None:
    """Does nothing if it is already logged out."""
    context.store.write(lambda tx: web_logins.end_login(tx, browser.login.id, context.now()))
    context.authenticator.web_logins.clear_cache()
    context.authenticator.proxy_grants.clear_cache()


def log_out_all_browsers(context: Context, caller: Caller) -> None:
    """All browsers of the caller, including this one."""

    def change(tx: Transaction, actor: User) -> None:
        web_logins.end_logins_of_user(tx, actor.name, context.now())
        accounts.add_audit_entry(tx, caller, "web.logout", actor.name, {"everywhere": True}, context.now())

    write_as_caller(context, caller, change)
    context.authenticator.web_logins.drop_codes(caller.user.name)
    context.authenticator.web_logins.clear_cache()
    context.authenticator.proxy_grants.clear_cache()


def _create_login(context: Context, caller: Caller, via: str, origin: BrowserClient) -> str:
    secret, now = generate_secret(), context.now()
    agent = "".join(letter for letter in origin.user_agent if letter.isprintable())[:_MAX_AGENT_LENGTH]

    def change(tx: Transaction, actor: User) -> None:
        web_logins.remove_expired_logins(tx, now - _REMEMBERED_FOR)
        for old in web_logins.list_open_logins(tx.conn, actor.name, now)[_MAX_LOGINS - 1 :]:
            web_logins.end_login(tx, old.id, now)
        login = WebLogin(0, actor.name, via, now, now + LOGIN_LIFETIME, now, agent, origin.address)
        web_logins.add_login(tx, login, secret_digest(secret))
        accounts.add_audit_entry(tx, caller, "web.login", actor.name, {"via": via}, now)

    write_as_caller(context, caller, change)
    return secret
