"""API tokens: personal ones, and the short-lived ones that a login creates."""

import unicodedata
from datetime import datetime, timedelta

from heliostat.auth.authentication import generate_token
from heliostat.config.sections import MAX_TOKEN_DAYS
from heliostat.errors import Conflict, Forbidden, Invalid, NotFound
from heliostat.models import Caller, Token, TokenScope, User
from heliostat.services.accounts.users import LOGIN_TOKEN_NAME
from heliostat.services.context import Context
from heliostat.services.permissions import write_as_caller
from heliostat.store import accounts
from heliostat.store.database import Transaction

LOGIN_TOKEN_LIFETIME = timedelta(hours=12)
MAX_TOKENS_PER_USER = 100
MAX_LOGIN_TOKENS_PER_USER = 50
_REMEMBERED_FOR = timedelta(days=30)  # how long an expired or revoked token is still listed


def create_token(  # noqa: PLR0913
    context: Context,
    caller: Caller,
    name: str,
    days: int | None = None,
    scope: TokenScope = TokenScope.FULL,
    *,
    most: int = MAX_TOKENS_PER_USER,
) -> tuple[str, Token]:
    """A token of the caller: its secret, which is shown only once, and the stored record."""
    days = context.settings.auth.token_days if days is None else days
    _check_request(name, days)
    now = context.now()

    def change(tx: Transaction, actor: User) -> tuple[str, Token]:
        active = [token for token in _active_tokens(tx, actor.name, now) if token.name != LOGIN_TOKEN_NAME]
        if len(active) >= most:
            raise Conflict(f"You have {len(active)} tokens already.", "Revoke those you no longer use.")
        return _add(tx, caller, Token(0, actor.name, name, now, now + timedelta(days=days), scope=scope))

    return write_as_caller(context, caller, change)


def create_login_token(
    context: Context, name: str, password: str, address: str, *, most: int = MAX_LOGIN_TOKENS_PER_USER
) -> tuple[str, Token]:
    """A token that is valid for 12 hours. Above the maximum number, the user's oldest logins end."""
    user = context.authenticator.authenticate_password(name, password, address)
    caller = Caller(user, "password", address)
    now = context.now()

    def change(tx: Transaction, actor: User) -> tuple[str, Token]:
        logins = [token.id for token in _active_tokens(tx, actor.name, now) if token.name == LOGIN_TOKEN_NAME]
        accounts.revoke_tokens(tx, logins[most - 1 :], now)
        return _add(tx, caller, Token(0, actor.name, LOGIN_TOKEN_NAME, now, now + LOGIN_TOKEN_LIFETIME))

    return write_as_caller(context, caller, change)


def list_tokens(context: Context, caller: Caller, user: str | None = None) -> list[Token]:
    """The caller's own; an admin may list those of others."""
    if user not in (None, caller.user.name) and not caller.user.is_admin:
        raise Forbidden("Only an admin can list the tokens of others.", "Omit the user to list your own.")
    with context.store.read() as conn:
        return accounts.list_tokens(conn, caller.user.name if user is None else user)


def revoke_token(context: Context, caller: Caller, token_id: int) -> None:
    """The caller's own, or any for an admin. Does nothing if it is already revoked."""

    def change(tx: Transaction, actor: User) -> None:
        token = accounts.find_token(tx.conn, token_id) if 0 < token_id < 2**63 else None
        if token is None or not (actor.is_admin or token.user == actor.name):
            raise NotFound(f"You have no token {token_id}.", "`helio token list` lists them.")
        if token.revoked_at is None:
            accounts.revoke_tokens(tx, [token_id], context.now())
            accounts.add_audit_entry(
                tx, caller, "token.revoke", str(token_id), _audit_details(token), context.now()
            )

    write_as_caller(context, caller, change)


def _add(tx: Transaction, caller: Caller, token: Token) -> tuple[str, Token]:
    accounts.remove_expired_tokens(tx, token.user, token.created_at - _REMEMBERED_FOR)
    secret, digest = generate_token()
    stored = accounts.add_token(tx, token, digest)
    accounts.add_audit_entry(tx, caller, "token.create", str(stored.id), _audit_details(stored), token.created_at)
    return secret, stored


def _active_tokens(tx: Transaction, user: str, now: datetime) -> list[Token]:
    """Newest first."""
    tokens = accounts.list_tokens(tx.conn, user)
    return [t for t in tokens if t.revoked_at is None and (t.expires_at is None or t.expires_at > now)]


def _audit_details(token: Token) -> dict[str, object]:
    return {"user": token.user, "name": token.name, "scope": token.scope.value}


def _check_request(name: str, days: int) -> None:
    fields = {}
    if not 1 <= len(name) <= 64 or name != name.strip() or any(_is_hidden(letter) for letter in name):
        fields["name"] = "must be 1 to 64 visible characters"
    elif name == LOGIN_TOKEN_NAME:
        fields["name"] = f"{LOGIN_TOKEN_NAME} is reserved for logins"
    if not 1 <= days <= MAX_TOKEN_DAYS:
        fields["days"] = f"must be between 1 and {MAX_TOKEN_DAYS}"
    if fields:
        problems = "; ".join(f"{field}: {problem}" for field, problem in fields.items())
        raise Invalid(f"The token cannot be created: {problems}.", "Correct these fields.", fields=fields)


def _is_hidden(letter: str) -> bool:
    """Control and format characters, lone surrogates, line breaks: they could make two names look alike."""
    return unicodedata.category(letter) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
