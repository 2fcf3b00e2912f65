import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from heliostat.auth.authentication import Authenticator, generate_token
from heliostat.config import AuthSettings
from heliostat.errors import Forbidden, HeliostatError, NotAuthenticated, StoreUnavailable, TooManyRequests
from heliostat.models import Role, Token, User
from heliostat.store import accounts
from heliostat.store.database import Store
from unit.auth.stand_ins import ALICE, BOB, CHEAP_PASSWORDS, DAEMON, ODD, ROOT, Clock, FakeUnix, new_store

PASSWORD = "correct horse battery"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def auth() -> AuthSettings:
    return AuthSettings()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with new_store(tmp_path) as store:
        yield store


@pytest.fixture
def authenticator(store: Store, auth: AuthSettings, clock: Clock) -> Iterator[Authenticator]:
    authenticator = Authenticator(store, auth, clock, FakeUnix(), CHEAP_PASSWORDS)
    yield authenticator
    authenticator.close()


def add_user(store: Store, clock: Clock, name: str, unix_user: str | None = None, **values: Any) -> User:
    password = values.pop("password", None)
    user = replace(User(name, Role.USER, unix_user, True, clock()), **values)
    hashed = CHEAP_PASSWORDS.hash(password, name) if password else None
    store.write(lambda tx: accounts.add_user(tx, user, hashed))
    return user


def set_user(store: Store, name: str, **values: Any) -> None:
    store.write(lambda tx: accounts.update_user(tx, name, **values))


def add_token(store: Store, clock: Clock, user: str, expires_in: timedelta | None = None) -> tuple[str, Token]:
    secret, digest = generate_token()
    token = Token(0, user, "laptop", clock(), clock() + expires_in if expires_in else None)
    return secret, store.write(lambda tx: accounts.add_token(tx, token, digest))


def audit_actions(store: Store) -> list[tuple[str, str]]:
    with store.read() as conn:
        return [(entry.action, entry.target) for entry in accounts.list_audit_entries(conn, 100)]


class CountingReads:
    """Stands before a store and counts who looks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = 0
        self.write = store.write

    def read(self) -> AbstractContextManager[Connection]:
        self.reads += 1
        return self._store.read()


class FullDisk(CountingReads):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.tried = threading.Event()
        self.write = self._fail  # type: ignore[assignment]

    def _fail(self, _change: object) -> None:
        self.tried.set()
        raise OperationalError("UPDATE", {}, sqlite3.OperationalError("database or disk is full"))


def test_root_becomes_the_first_admin_in_the_default_project(authenticator: Authenticator, store: Store) -> None:
    user = authenticator.authenticate_peer(ROOT)
    assert (user.name, user.role, user.unix_user, user.has_password) == ("root", Role.ADMIN, "root", False)
    assert user.is_member_of("default")
    assert audit_actions(store) == [("user.create", "root")]


def test_a_person_gets_an_ordinary_account_at_first_contact(authenticator: Authenticator, store: Store) -> None:
    user = authenticator.authenticate_peer(ALICE)
    assert (user.name, user.role, user.unix_user) == ("alice", Role.USER, "alice")
    authenticator.clear_caches()
    assert authenticator.authenticate_peer(ALICE) == user
    assert audit_actions(store) == [("user.create", "alice")]


@pytest.mark.parametrize("uid", [DAEMON, 65534, 2**32 - 1, -1, 4321])
def test_system_accounts_and_strangers_are_refused(authenticator: Authenticator, store: Store, uid: int) -> None:
    with pytest.raises(Forbidden) as caught:
        authenticator.authenticate_peer(uid)
    assert caught.value.hint
    assert audit_actions(store) == []


def test_nobody_is_admitted_by_themselves_when_the_setting_says_so(
    store: Store, auth: AuthSettings, clock: Clock
) -> None:
    closed = Authenticator(
        store,
        replace(auth, admit_local_users=False),
        clock,
        FakeUnix(),
        CHEAP_PASSWORDS,
    )
    with pytest.raises(Forbidden, match="has no account"):
        closed.authenticate_peer(ALICE)
    assert closed.authenticate_peer(ROOT).is_admin
    add_user(store, clock, "alice", "alice")
    assert closed.authenticate_peer(ALICE).name == "alice"


def test_without_root_only_the_servers_own_user_is_served(store: Store, auth: AuthSettings, clock: Clock) -> None:
    private = Authenticator(store, auth, clock, FakeUnix(server_uid=ALICE), CHEAP_PASSWORDS)
    assert private.authenticate_peer(ALICE).is_admin
    for uid in (ROOT, BOB):
        with pytest.raises(Forbidden) as caught:
            private.authenticate_peer(uid)
        assert "as root" in (caught.value.hint or "")


def test_whoever_the_server_runs_as_is_made_admin_of_what_they_own(
    store: Store, auth: AuthSettings, clock: Clock
) -> None:
    add_user(store, clock, "alice", "alice")
    user = Authenticator(store, auth, clock, FakeUnix(server_uid=ALICE), CHEAP_PASSWORDS).authenticate_peer(ALICE)
    assert user.is_admin
    assert audit_actions(store) == [("user.role", "alice")]


@pytest.mark.parametrize("unix_user", [None, "bob"])
def test_an_account_of_the_same_name_is_never_taken_over(
    authenticator: Authenticator, store: Store, clock: Clock, unix_user: str | None
) -> None:
    add_user(store, clock, "alice", unix_user, role=Role.ADMIN)
    with pytest.raises(Forbidden, match="already exists"):
        authenticator.authenticate_peer(ALICE)


def test_an_account_mapped_to_the_unix_user_is_theirs_under_any_name(
    authenticator: Authenticator, store: Store, clock: Clock
) -> None:
    add_user(store, clock, "a.liddell", "alice")
    assert authenticator.authenticate_peer(ALICE).name == "a.liddell"


def test_an_odd_unix_name_needs_a_mapping_unless_it_runs_the_server(
    authenticator: Authenticator, store: Store, auth: AuthSettings, clock: Clock
) -> None:
    with pytest.raises(Forbidden, match="cannot be an account name"):
        authenticator.authenticate_peer(ODD)
    owner = Authenticator(store, auth, clock, FakeUnix(server_uid=ODD), CHEAP_PASSWORDS).authenticate_peer(ODD)
    assert (owner.name, owner.unix_user, owner.is_admin) == ("_odd_lab", "Odd@lab", True)


def test_a_deactivated_account_is_refused_by_every_way_in(
    authenticator: Authenticator, store: Store, clock: Clock
) -> None:
    add_user(store, clock, "alice", "alice", password=PASSWORD)
    secret, _ = add_token(store, clock, "alice")
    authenticator.authenticate_peer(ALICE)
    authenticator.authenticate_token(secret)
    set_user(store, "alice", active=False)
    authenticator.clear_caches()
    ways: list[Callable[[], object]] = [
        lambda: authenticator.authenticate_peer(ALICE),
        lambda: authenticator.authenticate_token(secret),
        lambda: authenticator.authenticate_password("alice", PASSWORD, "10.0.0.1"),
    ]
    for way in ways:
        with pytest.raises(Forbidden, match="deactivated"):
            way()


def test_a_deactivated_server_user_is_not_made_admin(store: Store, auth: AuthSettings, clock: Clock) -> None:
    add_user(store, clock, "alice", "alice", active=False)
    with pytest.raises(Forbidden, match="deactivated"):
        Authenticator(store, auth, clock, FakeUnix(server_uid=ALICE), CHEAP_PASSWORDS).authenticate_peer(ALICE)
    assert audit_actions(store) == []


def test_many_threads_at_once_make_one_account(authenticator: Authenticator, store: Store) -> None:
    together = threading.Barrier(8)

    def contact(_number: int) -> User:
        together.wait(60)
        return authenticator.authenticate_peer(ALICE)

    with ThreadPoolExecutor(8) as pool:
        users = list(pool.map(contact, range(8)))
    assert len(set(users)) == 1
    assert audit_actions(store) == [("user.create", "alice")]


def test_a_warm_caller_costs_no_look_at_the_database(store: Store, auth: AuthSettings, clock: Clock) -> None:
    counting = CountingReads(store)
    authenticator = Authenticator(counting, auth, clock, FakeUnix(), CHEAP_PASSWORDS)  # type: ignore[arg-type]
    authenticator.authenticate_peer(ALICE)
    secret, _ = add_token(store, clock, "alice")
    authenticator.authenticate_token(secret)
    before = counting.reads
    for _ in range(100):
        authenticator.authenticate_peer(ALICE)
        authenticator.authenticate_token(secret)
    assert counting.reads == before
    clock.turn(seconds=31)
    authenticator.authenticate_peer(ALICE)
    assert counting.reads == before + 1
    authenticator.close()


def test_what_was_read_before_a_change_is_not_kept_after_it(
    authenticator: Authenticator, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    authenticator.authenticate_peer(ALICE)
    authenticator.clear_caches()
    find = accounts.find_user_by_unix_name

    def slow(conn: Connection, name: str) -> User | None:
        user = find(conn, name)
        set_user(store, "alice", active=False)
        authenticator.clear_caches()
        return user

    monkeypatch.setattr(accounts, "find_user_by_unix_name", slow)
    authenticator.authenticate_peer(ALICE)
    monkeypatch.setattr(accounts, "find_user_by_unix_name", find)
    with pytest.raises(Forbidden):
        authenticator.authenticate_peer(ALICE)


@pytest.mark.parametrize("secret", ["", "helio_" + "a" * 43, "' OR 1=1 --", "helio_\u0430", "\ud800", "x" * 10**6])
def test_an_unknown_token_is_refused(authenticator: Authenticator, secret: str) -> None:
    with pytest.raises(NotAuthenticated) as caught:
        authenticator.authenticate_token(secret)
    assert caught.value.hint
    assert "OR 1=1" not in str(caught.value.as_dict())


def test_a_digest_is_not_a_token(authenticator: Authenticator, store: Store, clock: Clock) -> None:
    add_user(store, clock, "alice")
    secret, digest = generate_token()
    store.write(lambda tx: accounts.add_token(tx, Token(0, "alice", "laptop", clock(), None), digest))
    with pytest.raises(NotAuthenticated):
        authenticator.authenticate_token(digest)
    assert authenticator.authenticate_token(secret).name == "alice"


def test_a_token_ends_on_time_even_when_it_is_warm(
    authenticator: Authenticator, store: Store, clock: Clock
) -> None:
    add_user(store, clock, "alice")
    secret, _ = add_token(store, clock, "alice", timedelta(seconds=10))
    assert authenticator.authenticate_token(secret).name == "alice"
    clock.turn(seconds=10)
    with pytest.raises(NotAuthenticated, match="expired"):
        authenticator.authenticate_token(secret)


def test_a_revoked_token_is_refused(authenticator: Authenticator, store: Store, clock: Clock) -> None:
    add_user(store, clock, "alice")
    secret, token = add_token(store, clock, "alice")
    authenticator.authenticate_token(secret)
    store.write(lambda tx: accounts.revoke_tokens(tx, [token.id], clock()))
    authenticator.clear_caches()
    with pytest.raises(NotAuthenticated, match="revoked"):
        authenticator.authenticate_token(secret)


def test_the_use_of_a_token_is_noted_once_a_minute(
    authenticator: Authenticator, store: Store, clock: Clock
) -> None:
    add_user(store, clock, "alice")
    secret, token = add_token(store, clock, "alice")

    def last_used() -> object:
        authenticator.close()
        with store.read() as conn:
            found = accounts.find_token(conn, token.id)
        return found and found.last_used_at

    first = clock()
    authenticator.authenticate_token(secret)
    assert last_used() == first
    clock.turn(seconds=59)
    authenticator.clear_caches()
    authenticator.authenticate_token(secret)
    assert last_used() == first
    clock.turn(seconds=1)
    authenticator.authenticate_token(secret)
    assert last_used() == clock()


def test_a_full_disk_does_not_keep_token_holders_out(store: Store, auth: AuthSettings, clock: Clock) -> None:
    add_user(store, clock, "alice")
    secret, _ = add_token(store, clock, "alice")
    disk = FullDisk(store)
    authenticator = Authenticator(disk, auth, clock, FakeUnix(), CHEAP_PASSWORDS)  # type: ignore[arg-type]
    assert authenticator.authenticate_token(secret).name == "alice"
    assert disk.tried.wait(120)
    authenticator.close()
    assert authenticator.authenticate_token(secret).name == "alice"


def test_the_right_password_opens_the_account(authenticator: Authenticator, store: Store, clock: Clock) -> None:
    add_user(store, clock, "alice", password=PASSWORD)
    assert authenticator.authenticate_password("alice", PASSWORD, "10.0.0.1").name == "alice"


@pytest.mark.parametrize(
    "name", ["nobody-here", "ALICE", "alice ", "\u0430lice", "alice\0", "' OR '1'='1", "x" * 10**6, "", "\ud800"]
)
def test_wrong_names_and_wrong_passwords_get_the_same_answer(
    authenticator: Authenticator, store: Store, clock: Clock, name: str
) -> None:
    add_user(store, clock, "alice", password=PASSWORD)
    answers = []
    for attempt in ((name, PASSWORD), ("alice", "not the password")):
        with pytest.raises(NotAuthenticated) as caught:
            authenticator.authenticate_password(*attempt, "10.0.0.1")
        answers.append(caught.value.as_dict())
    assert answers[0] == answers[1]


def test_an_account_without_a_password_cannot_log_in(authenticator: Authenticator) -> None:
    authenticator.authenticate_peer(ROOT)
    with pytest.raises(NotAuthenticated):
        authenticator.authenticate_password("root", "", "10.0.0.1")


def test_guessing_is_slowed_down_even_with_the_right_password_but_not_elsewhere(
    authenticator: Authenticator, store: Store, clock: Clock
) -> None:
    add_user(store, clock, "alice", password=PASSWORD)
    for _ in range(5):
        with pytest.raises(NotAuthenticated):
            authenticator.authenticate_password("alice", "not the password", "10.0.0.1")
    with pytest.raises(TooManyRequests, match="Too many"):
        authenticator.authenticate_password("alice", PASSWORD, "10.0.0.1")
    assert authenticator.authenticate_password("alice", PASSWORD, "10.0.1.1").name == "alice"
    clock.turn(seconds=2)
    assert authenticator.authenticate_password("alice", PASSWORD, "10.0.0.1").name == "alice"


def test_failed_logins_are_in_the_audit_log_and_cannot_fill_it(
    authenticator: Authenticator, store: Store, clock: Clock
) -> None:
    add_user(store, clock, "alice", password=PASSWORD)
    for number in range(40):
        for name in ("alice", f"s3cret-{number}", f"s3cret+{number}", "NO NAME"):
            with pytest.raises(NotAuthenticated):
                authenticator.authenticate_password(name, "not the password", f"10.0.{number}.1")
        clock.turn(seconds=30)
    clock.turn(hours=2)
    with pytest.raises(NotAuthenticated):
        authenticator.authenticate_password("alice", "not the password", "10.0.9.9")
    store.write(lambda tx: None)  # after the entries
    with store.read() as conn:
        entries = [entry for entry in accounts.list_audit_entries(conn, 500) if entry.action == "login.failed"]
    found = [(entry.target, entry.detail["failures_within_the_hour"]) for entry in reversed(entries)]
    unknown = "(no such account)"
    assert found == [
        *(("alice", 1), (unknown, 1), (unknown, 10), ("alice", 10), (unknown, 100), ("alice", 1)),
    ]
    assert (entries[0].user, entries[0].address) == ("-", "10.0.9.9")
    assert "s3cret" not in str(entries)


def test_guesses_made_all_at_once_are_counted_all(
    authenticator: Authenticator, store: Store, clock: Clock
) -> None:
    add_user(store, clock, "alice", password=PASSWORD)
    together = threading.Barrier(12)

    def guess(_number: int) -> type[HeliostatError]:
        together.wait(60)
        with pytest.raises(HeliostatError) as caught:
            authenticator.authenticate_password("alice", "not the password", "10.0.0.1")
        return caught.type

    with ThreadPoolExecutor(12) as pool:
        outcomes = list(pool.map(guess, range(12)))
    assert 1 <= outcomes.count(NotAuthenticated) <= 5  # a slow machine may turn some away before it looks
    assert outcomes.count(NotAuthenticated) + outcomes.count(TooManyRequests) == 12


def test_a_broken_database_is_no_failed_login(
    authenticator: Authenticator, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_user(store, clock, "alice", password=PASSWORD)

    def broken(*_: object) -> None:
        raise StoreUnavailable

    find: Callable[..., User | None] = accounts.find_user
    monkeypatch.setattr(accounts, "find_user", broken)
    for _ in range(10):
        with pytest.raises(StoreUnavailable):
            authenticator.authenticate_password("alice", PASSWORD, "10.0.0.1")
    monkeypatch.setattr(accounts, "find_user", find)
    assert authenticator.authenticate_password("alice", PASSWORD, "10.0.0.1").name == "alice"
