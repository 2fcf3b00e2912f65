"""Authentication by socket peer, token or password. `web_logins` handles browsers, `proxy_grants` the proxy."""

import hashlib
import re
import secrets
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from heliostat.auth.cache import Cache
from heliostat.auth.failed_login_audit import FailedLogins
from heliostat.auth.login_rate_limit import LoginAttempt, LoginRateLimiter
from heliostat.auth.passwords import Passwords
from heliostat.auth.proxy_grants import ProxyGrants
from heliostat.auth.unix_accounts import UnixAccount, UnixAccounts
from heliostat.auth.web_logins import WebLogins
from heliostat.config import AuthSettings
from heliostat.errors import Forbidden, NotAuthenticated
from heliostat.models import Caller, Membership, ProjectRole, Role, Token, TokenScope, User
from heliostat.server_log import get_logger
from heliostat.store import accounts
from heliostat.store.database import Store, Transaction

log = get_logger()

_ACCOUNT_NAME = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")
_USE_UPDATE_INTERVAL = timedelta(minutes=1)

TOKEN_PREFIX = "helio_"  # noqa: S105 - not a secret
_SECRET = re.compile(rf"{TOKEN_PREFIX}[A-Za-z0-9_-]{{43}}")


def is_account_name(name: str) -> bool:
    return _ACCOUNT_NAME.fullmatch(name) is not None


class Authenticator:
    """Finds the User of given credentials. Thread-safe, with a short-lived cache."""

    def __init__(
        self,
        store: Store,
        auth: AuthSettings,
        now: Callable[[], datetime],
        unix: UnixAccounts | None = None,
        passwords: Passwords | None = None,
    ) -> None:
        self.unix_accounts = unix or UnixAccounts()
        self.passwords = passwords or Passwords()
        self._store = store
        self._auth = auth
        self._now = now
        self._limiter = LoginRateLimiter(lambda: now().timestamp())
        self._failed_logins = FailedLogins(store, now)
        self._peers: Cache[int, User] = Cache(now)
        self._tokens: Cache[str, _TokenHolder] = Cache(now)
        self._uses = _TokenUses(store)
        self.web_logins = WebLogins(store, now)
        self.proxy_grants = ProxyGrants(store, now)

    def authenticate_peer(self, uid: int) -> User:
        """The Unix user of the process connected to the local socket. The first connection creates an account."""
        user = self._peers.get(uid, lambda: self._account_of(uid))
        return _active(user)

    def authenticate_token(self, secret: str, scopes: Collection[TokenScope] = tuple(TokenScope)) -> User:
        """Raises Forbidden if the token has none of these scopes."""
        if not is_token_format(secret):
            raise _unknown_token()
        digest = token_digest(secret)
        holder = self._tokens.get(digest, lambda: self._holder_of(digest))
        now = self._now()
        _check_valid(holder.token, now)
        user = _active(holder.user)
        if holder.token.scope not in scopes:
            raise _wrong_scope(holder.token.scope, scopes)
        self._uses.record(holder.token, now)
        return user

    def authenticate_password(self, name: str, password: str, address: str) -> User:
        """Rate-limited after failures, by name and client."""
        known = name if is_account_name(name) else None
        attempt = self._limiter.begin_login(known, address)
        try:
            user, is_right = self._check_password(known, password, attempt)
        except BaseException:
            self._limiter.login_aborted(attempt)
            raise
        if user is None or not is_right:
            log.warning("login_failed", address=address)  # without the name: users sometimes type passwords there
            self._failed_logins.record(user.name if user else None, address)
            raise NotAuthenticated("Wrong user name or password.", "An admin can set a new password.")
        self._limiter.login_succeeded(attempt)
        return _active(user)

    def clear_caches(self) -> None:
        """Call after a change of accounts."""
        self._peers.clear()
        self._tokens.clear()
        self.web_logins.clear_cache()
        self.proxy_grants.clear_cache()

    def close(self) -> None:
        """Wait until the recorded uses of tokens are written."""
        self._uses.close()

    def _account_of(self, uid: int) -> User:
        account = self._permitted_account(uid)
        is_local_admin = self.unix_accounts.is_local_admin(uid)
        with self._store.read() as conn:
            user = accounts.find_user_by_unix_name(conn, account.name)
        if user is not None and (user.is_admin or not is_local_admin or not user.active):
            return user
        if user is None and not is_local_admin and not self._auth.admit_local_users:
            raise Forbidden(f"{account.name} has no account in Heliostat.", "Ask an admin to create one.")
        return self._store.write(lambda tx: self._create_or_promote(tx, account, is_local_admin))

    def _permitted_account(self, uid: int) -> UnixAccount:
        if not self.unix_accounts.server_is_root and uid != self.unix_accounts.server_uid:
            raise Forbidden(
                "This server accepts only the user who started it.",
                "Ask the admin to run Heliostat as root; then each job runs as its own user.",
            )
        if not self.unix_accounts.may_have_account(uid):
            raise Forbidden(
                f"The system account with uid {uid} may not use Heliostat.",
                "Use the account of a person (uid 1000 or higher).",
            )
        account = self.unix_accounts.find_by_uid(uid)
        if account is None:
            raise Forbidden(f"This machine has no user with uid {uid}.", "Add the user to the machine first.")
        return account

    def _create_or_promote(self, tx: Transaction, account: UnixAccount, is_local_admin: bool) -> User:
        """Create the account, unless another thread just did. A local admin becomes an admin."""
        user = accounts.find_user_by_unix_name(tx.conn, account.name)
        if user is None:
            return self._create(tx, account, Role.ADMIN if is_local_admin else Role.USER)
        if is_local_admin and user.active and not user.is_admin:
            accounts.update_user(tx, user.name, role=Role.ADMIN.value)
            self._audit(tx, user, "user.role", {"from": user.role.value, "to": Role.ADMIN.value})
            return accounts.find_user(tx.conn, user.name) or user
        return user

    def _create(self, tx: Transaction, account: UnixAccount, role: Role) -> User:
        name = _account_name(account, role)
        if accounts.find_user(tx.conn, name) is not None:
            raise Forbidden(
                f"The account {name} already exists, but is not assigned to the Unix user {account.name}.",
                f"If it is yours, ask an admin to set its unix_user to {account.name}.",
            )
        project = self._auth.default_project
        accounts.ensure_project(tx, project, self._auth.default_department)
        memberships = (Membership(project, ProjectRole.MEMBER),)
        user = User(name, role, account.name, True, self._now(), memberships)
        accounts.add_user(tx, user)
        self._audit(tx, user, "user.create", {"role": role.value, "unix_user": account.name, "project": project})
        return user

    def _audit(self, tx: Transaction, user: User, action: str, detail: dict[str, object]) -> None:
        accounts.add_audit_entry(
            tx, Caller(user, "socket", "local socket"), action, user.name, detail, self._now()
        )

    def _holder_of(self, digest: str) -> "_TokenHolder":
        with self._store.read() as conn:
            token = accounts.find_token_by_digest(conn, digest)
            user = accounts.find_user(conn, token.user) if token else None
        if token is None or user is None:
            raise _unknown_token()
        return _TokenHolder(token, user)

    def _check_password(self, name: str | None, password: str, attempt: LoginAttempt) -> tuple[User | None, bool]:
        """The account, if it exists, and whether this is its password."""
        user = hashed = None
        if name is not None:
            with self._store.read() as conn:
                user, hashed = accounts.find_user(conn, name), accounts.get_password_hash(conn, name)
        return user, self.passwords.verify(password, hashed, attempt.queue_key)


@dataclass(frozen=True, slots=True)
class _TokenHolder:
    token: Token
    user: User


def _active(user: User) -> User:
    if not user.active:
        raise Forbidden(f"The account {user.name} is deactivated.", "An admin can activate it again.")
    return user


def _check_valid(token: Token, now: datetime) -> None:
    hint = "Create a new token: `helio token create` on the server, or log in again."
    if token.revoked_at is not None:
        raise NotAuthenticated("This token was revoked.", hint)
    if token.expires_at is not None and token.expires_at <= now:
        raise NotAuthenticated("This token has expired.", hint)


def _wrong_scope(scope: TokenScope, allowed: Collection[TokenScope]) -> Forbidden:
    needed = next(one for one in TokenScope if one in allowed)
    return Forbidden(
        f"This token has the scope {scope}, which does not allow this.",
        f"Use another token: helio token create --scope {needed} --name NAME",
    )


def _unknown_token() -> NotAuthenticated:
    return NotAuthenticated("Unknown token.", "Check that it is complete: helio_ and 43 characters.")


def _account_name(account: UnixAccount, role: Role) -> str:
    """The Unix name. The first admin must be able to log in even if that is not a valid account name."""
    if is_account_name(account.name):
        return account.name
    if role is Role.ADMIN:
        return "_" + re.sub(r"[^a-z0-9_.-]", "_", account.name.lower())[:31]
    raise Forbidden(
        f"The Unix name {account.name!a} cannot be an account name.",
        "Ask an admin to create an account with your Unix name as its unix_user.",
    )


class _TokenUses:
    """Stores the last use of tokens in a background thread, so that no request waits or fails for it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._recorded: dict[int, datetime] = {}
        self._waiting: dict[int, datetime] = {}
        self._thread: threading.Thread | None = None

    def record(self, token: Token, now: datetime) -> None:
        with self._lock:
            before = self._recorded.get(token.id, token.last_used_at)
            if before is not None and timedelta() <= now - before < _USE_UPDATE_INTERVAL:
                return
            if len(self._recorded) >= 4096:
                self._recorded.clear()
            self._recorded[token.id] = self._waiting[token.id] = now
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="token-uses", daemon=True)
                self._thread.start()

    def close(self) -> None:
        thread = self._thread
        if thread is not None:
            thread.join(timeout=5)

    def _write(self) -> None:
        while uses := self._take():
            try:
                self._store.write(partial(accounts.set_tokens_last_used, used=uses))
            except Exception as error:  # noqa: BLE001 - not important; the next use writes it
                log.warning("token_use_not_written", error=str(error))

    def _take(self) -> dict[int, datetime]:
        with self._lock:
            uses, self._waiting = self._waiting, {}
            if not uses:
                self._thread = None
            return uses


def generate_token() -> tuple[str, str]:
    """A secret of 256 random bits, and its digest."""
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    return secret, token_digest(secret)


def token_digest(secret: str) -> str:
    """The stored digest.

    Plain SHA-256 is enough because the secret is random. An attacker cannot control the digest of a guess, so the
    time of a lookup reveals nothing about existing tokens.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def is_token_format(text: str) -> bool:
    return _SECRET.fullmatch(text) is not None
