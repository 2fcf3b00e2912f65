import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliostat.auth.authentication import Authenticator
from heliostat.config import Home, Settings
from heliostat.engines.contract import Capabilities
from heliostat.errors import (
    Conflict,
    Forbidden,
    HeliostatError,
    Invalid,
    NotAuthenticated,
    NotFound,
    TooManyRequests,
)
from heliostat.models import AuditEntry, Caller, JobState, ProjectRole, Role, User
from heliostat.services.accounts import audit, projects, tokens, users
from heliostat.services.accounts.owned_work import get_owned_work
from heliostat.services.accounts.users import NewUser, UserChange
from heliostat.services.context import Context
from heliostat.store import accounts as stored
from unit.auth.stand_ins import ALICE, BOB, CHEAP_PASSWORDS, ROOT, Clock, FakeUnix, new_store
from unit.services.site import Site

PASSWORD = "correct horse battery"
OTHER_PASSWORD = "staple paperclip glue"
HOSTILE = [
    "",
    "Alice",
    "\u0430lice",  # a Cyrillic a
    "alice\u200b",  # a zero-width space
    "alice\u202e",  # turns the text after it around
    "\uff41lice",  # a wide a
    "alice\n",
    "alice\0",
    "al ice",
    "alice'; DROP TABLE users; --",
    "$(reboot)",
    "`id`",
    "../etc",
    "..",
    ".",
    "-rf",
    "a/b",
    "a%2fb",
    "a:b",
    "x" * 64,
    "x" * 100_000,
    "\ud800",
    "\u0661\u0662",  # digits, but not ours
]


@dataclass
class House:
    """An installation with an admin, root."""

    context: Context
    clock: Clock
    root: Caller

    def caller(self, name: str, via: str = "token") -> Caller:
        with self.context.store.read() as conn:
            user = stored.find_user(conn, name)
        assert user is not None
        return Caller(user, via, "10.0.0.9")

    def add(self, name: str, role: Role = Role.USER, **values: Any) -> Caller:
        users.create_user(self.context, self.root, NewUser(name, role, **values))
        return self.caller(name)

    def project(self, name: str, *members: str, manager: str | None = None) -> None:
        projects.create_project(self.context, self.root, name, "default")
        for member in members:
            projects.add_member(self.context, self.root, name, member)
        if manager:
            projects.add_member(self.context, self.root, name, manager, ProjectRole.MANAGER)

    def audit(self) -> list[AuditEntry]:
        return audit.list_audit_entries(self.context, self.root)[0]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    clock = Clock()
    with new_store(tmp_path) as store:
        settings = Settings(Home(tmp_path))
        authenticator = Authenticator(store, settings.auth, clock, FakeUnix(), CHEAP_PASSWORDS)
        engine = SimpleNamespace(capabilities=Capabilities(runs_on_server_host=True))
        parts = SimpleNamespace(
            settings=settings, store=store, authenticator=authenticator, now=clock, engine=engine
        )
        yield House(cast(Context, parts), clock, Caller(authenticator.authenticate_peer(ROOT), "socket", "local"))
        authenticator.close()


def without_root(house: House) -> Caller:
    """Only a remote admin, without an account of root."""
    boss = house.add("boss", Role.ADMIN)
    house.context.store.write(lambda tx: stored.update_user(tx, "root", role=Role.USER.value))
    return boss


def test_an_admin_creates_an_account_in_the_default_project(house: House) -> None:
    user = users.create_user(house.context, house.root, NewUser("carol", password=PASSWORD))
    assert (user.name, user.role, user.unix_user, user.has_password) == ("carol", Role.USER, None, True)
    assert user.is_member_of("default")
    assert house.caller("carol").user == user
    entry = house.audit()[0]
    assert (entry.user, entry.via, entry.action, entry.target) == ("root", "socket", "user.create", "carol")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_user_name_is_refused_with_its_field(house: House, name: str) -> None:
    with pytest.raises(Invalid) as caught:
        users.create_user(house.context, house.root, NewUser(name))
    assert set(caught.value.fields) == {"name"}
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 600
    assert len(house.audit()) == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_group_name_is_refused_with_its_field(house: House, name: str) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: projects.create_department(house.context, house.root, name),
        lambda: projects.create_project(house.context, house.root, name, "default"),
    ]
    for attempt in attempts:
        with pytest.raises(Invalid) as caught:
            attempt()
        assert set(caught.value.fields) == {"name"}


@pytest.mark.parametrize("name", ["a", "_", "a.b-c_d9", "x" * 32])
def test_an_allowed_user_name_is_stored_unchanged(house: House, name: str) -> None:
    assert house.add(name).user.name == name


@pytest.mark.parametrize(
    "unix_user", ["root", "toor", "daemon", "nobody-here", "", "root\n", "bob\0", "$(id)", "\ud800"]
)
def test_an_account_is_never_mapped_to_root_a_system_account_or_nobody(house: House, unix_user: str) -> None:
    house.add("carol")
    attempts: list[Callable[[], object]] = [
        lambda: users.create_user(house.context, house.root, NewUser("dave", unix_user=unix_user)),
        lambda: users.update_user(house.context, house.root, "carol", UserChange(unix_user=unix_user)),
    ]
    for attempt in attempts:
        with pytest.raises(Invalid) as caught:
            attempt()
        assert set(caught.value.fields) == {"unix_user"}


def test_the_servers_own_unix_user_is_reserved(house: House) -> None:
    parts = cast(Any, house.context)
    parts.authenticator = Authenticator(
        house.context.store, house.context.settings.auth, house.clock, FakeUnix(ALICE), CHEAP_PASSWORDS
    )
    with pytest.raises(Invalid, match="runs Heliostat"):
        users.create_user(house.context, house.root, NewUser("carol", unix_user="alice"))
    with pytest.raises(Invalid, match="administers this server"):
        users.create_user(house.context, house.root, NewUser("alice"))


def test_no_two_accounts_share_a_unix_user_even_by_another_name_of_it(house: House) -> None:
    house.add("carol", unix_user="bob")
    house.add("dave")
    for unix_user in ("bob", "bobby"):
        with pytest.raises(Conflict, match="carol"):
            users.create_user(house.context, house.root, NewUser("erin", unix_user=unix_user))
        with pytest.raises(Conflict, match="carol"):
            users.update_user(house.context, house.root, "dave", UserChange(unix_user=unix_user))
    assert house.context.authenticator.authenticate_peer(BOB).name == "carol"


def test_on_a_simulated_cluster_the_unix_user_need_not_exist(house: House) -> None:
    cast(Any, house.context).engine = SimpleNamespace(capabilities=Capabilities())
    assert house.add("carol", unix_user="carol").user.unix_user == "carol"
    for unix_user in ("root", "daemon", "$(id)"):
        with pytest.raises(Invalid):
            users.create_user(house.context, house.root, NewUser("dave", unix_user=unix_user))


def test_an_account_without_a_unix_user_cannot_run_jobs(house: House) -> None:
    house.add("carol", unix_user="bob")
    user = users.update_user(house.context, house.root, "carol", UserChange(clear_unix_user=True))
    assert user.unix_user is None
    assert house.audit()[0].detail == {"from": "bob", "to": None}


def test_a_name_in_use_and_an_unknown_project_are_refused(house: House) -> None:
    house.add("carol")
    with pytest.raises(Conflict):
        users.create_user(house.context, house.root, NewUser("carol"))
    with pytest.raises(Invalid) as caught:
        users.create_user(house.context, house.root, NewUser("dave", projects=("nowhere",)))
    assert set(caught.value.fields) == {"projects"}


def test_the_root_account_cannot_be_changed_by_another_admin(house: House) -> None:
    boss = house.add("boss", Role.ADMIN)
    attempts: list[Callable[[], object]] = [
        lambda: users.update_user(house.context, boss, "root", UserChange(role=Role.USER)),
        lambda: users.update_user(house.context, boss, "root", UserChange(active=False)),
        lambda: users.update_user(house.context, boss, "root", UserChange(clear_unix_user=True)),
        lambda: users.set_password(house.context, boss, "root", PASSWORD),
    ]
    for attempt in attempts:
        with pytest.raises((Conflict, Forbidden)):
            attempt()
    users.set_password(house.context, house.root, "root", PASSWORD)
    assert house.caller("root").user.has_password


def test_the_last_active_admin_stays(house: House) -> None:
    boss = without_root(house)
    attempts: list[Callable[[], object]] = [
        lambda: users.update_user(house.context, boss, "boss", UserChange(role=Role.USER)),
        lambda: users.update_user(house.context, boss, "boss", UserChange(active=False)),
        lambda: users.update_user(house.context, boss, "boss", UserChange(role=Role.USER, active=False)),
    ]
    for attempt in attempts:
        with pytest.raises(Conflict, match="last active admin"):
            attempt()
    assert house.caller("boss").user.is_admin


def test_a_deactivated_admin_does_not_count_as_another(house: House) -> None:
    house.add("sleeper", Role.ADMIN)
    users.update_user(house.context, house.root, "sleeper", UserChange(active=False))
    boss = without_root(house)
    with pytest.raises(Conflict, match="last active admin"):
        users.update_user(house.context, boss, "boss", UserChange(active=False))


def test_two_admins_who_remove_each_other_at_once_leave_one(house: House) -> None:
    one = without_root(house)
    users.create_user(house.context, one, NewUser("boss2", Role.ADMIN))
    two = house.caller("boss2")
    together = threading.Barrier(2)

    def demote(caller: Caller, name: str) -> str:
        together.wait(60)
        try:
            users.update_user(house.context, caller, name, UserChange(role=Role.USER))
        except (Conflict, Forbidden) as error:
            return error.code
        return "done"

    with ThreadPoolExecutor(2) as pool:
        outcomes = {pool.submit(demote, one, "boss2"), pool.submit(demote, two, "boss")}
    assert sorted(outcome.result() for outcome in outcomes) == ["done", "forbidden"]
    assert house.caller("boss").user.is_admin != house.caller("boss2").user.is_admin


def test_permissions_lost_since_the_request_arrived_are_not_used(house: House) -> None:
    stale = house.add("boss", Role.ADMIN)
    users.update_user(house.context, house.root, "boss", UserChange(role=Role.USER))
    assert stale.user.is_admin
    with pytest.raises(Forbidden):
        users.create_user(house.context, stale, NewUser("mallory", Role.ADMIN))
    users.update_user(house.context, house.root, "boss", UserChange(active=False))
    with pytest.raises(Forbidden):
        tokens.create_token(house.context, stale, "late")


def test_a_regular_user_can_change_only_their_own_account(house: House) -> None:
    mallory = house.add("mallory", password=PASSWORD)
    house.add("victim", password=PASSWORD)
    context = house.context
    attempts: list[Callable[[], object]] = [
        lambda: users.create_user(context, mallory, NewUser("minion")),
        lambda: users.update_user(context, mallory, "mallory", UserChange(role=Role.ADMIN)),
        lambda: users.update_user(context, mallory, "victim", UserChange(active=False)),
        lambda: users.update_user(context, mallory, "victim", UserChange(active=True)),
        lambda: users.update_user(context, mallory, "mallory", UserChange(unix_user="bob")),
        lambda: users.set_password(context, mallory, "victim", OTHER_PASSWORD, PASSWORD),
        lambda: users.set_password(context, mallory, "root", OTHER_PASSWORD),
        lambda: projects.create_department(context, mallory, "mine"),
        lambda: projects.create_project(context, mallory, "mine", "default"),
        lambda: projects.add_member(context, mallory, "default", "victim"),
        lambda: projects.remove_member(context, mallory, "default", "victim"),
        lambda: audit.list_audit_entries(context, mallory),
        lambda: tokens.list_tokens(context, mallory, "victim"),
    ]
    before = house.audit()
    for attempt in attempts:
        with pytest.raises(Forbidden):
            attempt()
    assert house.audit() == before


def test_deactivation_ends_all_logins_and_activation_restores_no_token(house: House) -> None:
    carol = house.add("carol", password=PASSWORD)
    secret, _ = tokens.create_token(house.context, carol, "laptop")
    authenticator = house.context.authenticator
    assert authenticator.authenticate_token(secret).name == "carol"
    users.update_user(house.context, house.root, "carol", UserChange(active=False))
    with pytest.raises(HeliostatError):
        authenticator.authenticate_token(secret)
    users.update_user(house.context, house.root, "carol", UserChange(active=True))
    with pytest.raises(NotAuthenticated, match="revoked"):
        authenticator.authenticate_token(secret)
    assert authenticator.authenticate_password("carol", PASSWORD, "10.0.0.1").active


def test_changing_the_own_password_needs_the_current_one_except_on_the_socket(house: House) -> None:
    carol = house.add("carol", password=PASSWORD)
    for current in (None, "", OTHER_PASSWORD):
        with pytest.raises(Invalid) as caught:
            users.set_password(house.context, carol, "carol", OTHER_PASSWORD, current)
        assert set(caught.value.fields) == {"current"}
    users.set_password(house.context, carol, "carol", OTHER_PASSWORD, PASSWORD)
    assert house.context.authenticator.authenticate_password("carol", OTHER_PASSWORD, "10.0.0.1").name == "carol"
    users.set_password(house.context, house.caller("carol", via="socket"), "carol", PASSWORD)
    assert house.context.authenticator.authenticate_password("carol", PASSWORD, "10.0.0.1").name == "carol"


def test_the_first_password_cannot_be_set_remotely(house: House) -> None:
    carol = house.add("carol")
    with pytest.raises(Forbidden, match="no password yet"):
        users.set_password(house.context, carol, "carol", PASSWORD, "")


def test_a_stolen_token_cannot_guess_the_current_password_fast(house: House) -> None:
    carol = house.add("carol", password=PASSWORD)
    for _ in range(5):
        with pytest.raises(Invalid):
            users.set_password(house.context, carol, "carol", OTHER_PASSWORD, "a wrong guess")
    with pytest.raises(TooManyRequests):
        users.set_password(house.context, carol, "carol", OTHER_PASSWORD, PASSWORD)


def test_a_concurrent_reset_wins_over_a_password_change(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    carol = house.add("carol", password=PASSWORD)
    authenticator = house.context.authenticator
    prove = authenticator.authenticate_password

    def prove_slowly(name: str, password: str, address: str) -> User:
        user = prove(name, password, address)
        users.set_password(house.context, house.root, "carol", OTHER_PASSWORD)
        return user

    monkeypatch.setattr(authenticator, "authenticate_password", prove_slowly)
    with pytest.raises(Conflict):
        users.set_password(house.context, carol, "carol", "mallory's own choice", PASSWORD)
    assert prove("carol", OTHER_PASSWORD, "10.0.0.1").name == "carol"


def test_a_new_password_ends_logins_but_leaves_tokens(house: House) -> None:
    carol = house.add("carol", password=PASSWORD)
    login, _ = tokens.create_login_token(house.context, "carol", PASSWORD, "10.0.0.1")
    token, _ = tokens.create_token(house.context, carol, "laptop")
    users.set_password(house.context, house.root, "carol", OTHER_PASSWORD)
    with pytest.raises(NotAuthenticated):
        house.context.authenticator.authenticate_token(login)
    assert house.context.authenticator.authenticate_token(token).name == "carol"


def test_a_login_lasts_12_hours(house: House) -> None:
    house.add("carol", password=PASSWORD)
    secret, token = tokens.create_login_token(house.context, "carol", PASSWORD, "10.0.0.1")
    assert token.expires_at == house.clock() + tokens.LOGIN_TOKEN_LIFETIME
    assert house.audit()[0].via == "password"
    house.clock.turn(hours=12)
    with pytest.raises(NotAuthenticated, match="expired"):
        house.context.authenticator.authenticate_token(secret)


def test_above_the_maximum_the_oldest_logins_end(house: House) -> None:
    carol = house.add("carol", password=PASSWORD)
    first, _ = tokens.create_login_token(house.context, "carol", PASSWORD, "10.0.0.1")
    later = [tokens.create_login_token(house.context, "carol", PASSWORD, "10.0.0.1", most=3)[0] for _ in range(3)]
    with pytest.raises(NotAuthenticated):
        house.context.authenticator.authenticate_token(first)
    assert all(house.context.authenticator.authenticate_token(secret).name == "carol" for secret in later)
    live = [token for token in tokens.list_tokens(house.context, carol) if token.revoked_at is None]
    assert len(live) == 3


def test_no_secret_reaches_the_audit_log_or_the_token_list(house: House) -> None:
    carol = house.add("carol", password=PASSWORD)
    users.set_password(house.context, carol, "carol", OTHER_PASSWORD, PASSWORD)
    secret, _ = tokens.create_token(house.context, carol, "laptop")
    login, _ = tokens.create_login_token(house.context, "carol", OTHER_PASSWORD, "10.0.0.1")
    shown = repr(house.audit()) + repr(tokens.list_tokens(house.context, carol))
    for hidden in (PASSWORD, OTHER_PASSWORD, secret, login, "argon2", secret.removeprefix("helio_")):
        assert hidden not in shown


@pytest.mark.parametrize("name", ["", " ", "login", "a\nb", "a\0", "a\u202eb", "a\u200bb", "x" * 65, "\ud800"])
def test_a_token_name_is_short_and_visible(house: House, name: str) -> None:
    with pytest.raises(Invalid) as caught:
        tokens.create_token(house.context, house.root, name)
    assert set(caught.value.fields) == {"name"}


@pytest.mark.parametrize("days", [0, -1, 367, 10**12])
def test_a_token_lasts_a_year_at_most(house: House, days: int) -> None:
    with pytest.raises(Invalid) as caught:
        tokens.create_token(house.context, house.root, "laptop", days)
    assert set(caught.value.fields) == {"days"}


def test_the_default_token_lifetime_comes_from_the_settings(house: House) -> None:
    _, token = tokens.create_token(house.context, house.root, "caf\u00e9 laptop")
    assert token.expires_at is not None
    assert (token.expires_at - house.clock()).days == 90


def test_only_the_owner_or_an_admin_revokes_a_token(house: House) -> None:
    carol, mallory = house.add("carol"), house.add("mallory")
    secret, token = tokens.create_token(house.context, carol, "laptop")
    for token_id in (token.id, 999, 0, -1, 2**63, 10**30):
        with pytest.raises(NotFound):
            tokens.revoke_token(house.context, mallory, token_id)
    assert house.context.authenticator.authenticate_token(secret).name == "carol"
    tokens.revoke_token(house.context, house.root, token.id)
    tokens.revoke_token(house.context, carol, token.id)
    with pytest.raises(NotAuthenticated, match="revoked"):
        house.context.authenticator.authenticate_token(secret)
    assert [entry.action for entry in house.audit()].count("token.revoke") == 1


def test_the_number_of_tokens_per_user_is_limited(house: House) -> None:
    for _ in range(2):
        tokens.create_token(house.context, house.root, "laptop", 1, most=2)
    with pytest.raises(Conflict):
        tokens.create_token(house.context, house.root, "laptop", 1, most=2)
    house.clock.turn(days=2)
    tokens.create_token(house.context, house.root, "laptop", 1, most=2)


def test_old_expired_tokens_are_deleted(house: House) -> None:
    _, old = tokens.create_token(house.context, house.root, "old", 1)
    _, kept = tokens.create_token(house.context, house.root, "kept", 100)
    house.clock.turn(days=32)
    _, new = tokens.create_token(house.context, house.root, "new", 1)
    assert [token.id for token in tokens.list_tokens(house.context, house.root)] == [new.id, kept.id]
    assert old.id not in (new.id, kept.id)


def test_the_id_of_a_deleted_token_is_not_reused(house: House) -> None:
    _, old = tokens.create_token(house.context, house.root, "old", 1)
    house.clock.turn(days=60)
    _, new = tokens.create_token(house.context, house.root, "new", 1)
    assert new.id > old.id


def test_a_manager_adds_and_removes_the_members_of_their_project(house: House) -> None:
    pi = house.add("pi")
    house.add("student")
    house.project("chest-ct", manager="pi")
    pi = house.caller("pi")
    project = projects.add_member(house.context, pi, "chest-ct", "student")
    assert ("student", ProjectRole.MEMBER) in project.members
    assert house.caller("student").user.is_member_of("chest-ct")
    assert ("student", ProjectRole.MEMBER) not in projects.remove_member(
        house.context, pi, "chest-ct", "student"
    ).members
    projects.remove_member(house.context, pi, "chest-ct", "student")
    actions = [entry.action for entry in house.audit()]
    assert actions[:2] == ["project.remove_member", "project.add_member"]
    assert actions.count("project.remove_member") == 1


def test_a_manager_cannot_change_another_project(house: House) -> None:
    for name in ("pi", "rival", "student"):
        house.add(name)
    house.project("chest-ct", "student", manager="pi")
    house.project("knee-mri", manager="rival")
    rival = house.caller("rival")
    for project in ("chest-ct", "default", "no-such-project"):
        for attempt in (projects.add_member, projects.remove_member):
            with pytest.raises(Forbidden):
                attempt(house.context, rival, project, "student")
    with pytest.raises(NotFound):
        projects.get_project(house.context, rival, "chest-ct")
    assert house.caller("student").user.is_member_of("chest-ct")


def test_a_manager_cannot_appoint_or_remove_managers(house: House) -> None:
    for name in ("pi", "copi", "student"):
        house.add(name)
    house.project("chest-ct", "student", manager="pi")
    projects.add_member(house.context, house.root, "chest-ct", "copi", ProjectRole.MANAGER)
    pi = house.caller("pi")
    attempts: list[Callable[[], object]] = [
        lambda: projects.add_member(house.context, pi, "chest-ct", "student", ProjectRole.MANAGER),
        lambda: projects.add_member(house.context, pi, "chest-ct", "copi", ProjectRole.MEMBER),
        lambda: projects.remove_member(house.context, pi, "chest-ct", "copi"),
    ]
    for attempt in attempts:
        with pytest.raises(Forbidden):
            attempt()
    assert house.caller("copi").user.may_manage("chest-ct")


def test_members_and_projects_that_do_not_exist_are_not_found(house: House) -> None:
    for project, user in (("default", "nobody"), ("nowhere", "root"), ("' OR 1=1", "root"), ("default", "\u0430")):
        with pytest.raises(NotFound):
            projects.add_member(house.context, house.root, project, user)


def test_a_project_needs_a_department_that_exists(house: House) -> None:
    with pytest.raises(Invalid) as caught:
        projects.create_project(house.context, house.root, "chest-ct", "radiology")
    assert set(caught.value.fields) == {"department"}
    for odd in HOSTILE:
        with pytest.raises(Invalid):
            projects.create_project(house.context, house.root, "chest-ct", odd)
        with pytest.raises(Invalid):
            users.create_user(house.context, house.root, NewUser("carol", projects=(odd,)))
        for attempt in (users.get_user, projects.get_project):
            with pytest.raises(NotFound):
                attempt(house.context, house.root, odd)
    projects.create_department(house.context, house.root, "radiology")
    assert projects.create_project(house.context, house.root, "chest-ct", "radiology").department == "radiology"
    with pytest.raises(Conflict):
        projects.create_department(house.context, house.root, "radiology")
    with pytest.raises(Conflict):
        projects.create_project(house.context, house.root, "chest-ct", "radiology")


def test_users_see_only_members_of_their_projects(house: House) -> None:
    house.project("chest-ct")
    house.project("knee-mri")
    house.add("carol", projects=("chest-ct",))
    house.add("dave", projects=("chest-ct", "knee-mri"), password=PASSWORD, unix_user="bob")
    house.add("erin", projects=("knee-mri",))
    carol = house.caller("carol")
    assert [user.name for user in users.list_users(house.context, carol)] == ["carol", "dave"]
    dave = users.get_user(house.context, carol, "dave")
    assert ([m.project for m in dave.memberships], dave.has_password, dave.unix_user) == (
        ["chest-ct"],
        False,
        None,
    )
    with pytest.raises(NotFound):
        users.get_user(house.context, carol, "erin")
    assert [project.name for project in projects.list_projects(house.context, carol)] == ["chest-ct"]
    assert len(users.list_users(house.context, house.root)) == 4
    assert users.get_user(house.context, house.root, "dave").unix_user == "bob"


def test_a_change_is_seen_at_the_next_request(house: House) -> None:
    authenticator = house.context.authenticator
    alice = authenticator.authenticate_peer(ALICE)
    house.project("chest-ct", "alice")
    assert not alice.is_member_of("chest-ct")
    assert authenticator.authenticate_peer(ALICE).is_member_of("chest-ct")


def test_the_audit_log_is_read_page_by_page_from_the_newest(house: House) -> None:
    for number in range(9):
        house.add(f"user{number}")
    entries: list[AuditEntry] = []
    cursor = None
    while True:
        page, cursor = audit.list_audit_entries(house.context, house.root, 4, cursor)
        entries += page
        if cursor is None:
            break
    assert [entry.target for entry in entries] == [f"user{number}" for number in range(8, -1, -1)] + ["root"]


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.5", "9" * 30, "9" * 10_000, "\u0661", "1 OR 1=1"])
def test_an_invalid_cursor_is_refused(house: House, cursor: str) -> None:
    with pytest.raises(Invalid) as caught:
        audit.list_audit_entries(house.context, house.root, 10, cursor)
    assert set(caught.value.fields) == {"cursor"}


def test_a_change_that_fails_halfway_leaves_nothing(house: House) -> None:
    house.add("carol", unix_user="bob")
    house.add("dave")
    before = house.audit()
    with pytest.raises(Conflict):
        users.update_user(house.context, house.root, "dave", UserChange(role=Role.ADMIN, unix_user="bob"))
    assert not house.caller("dave").user.is_admin
    assert house.audit() == before


def test_users_read_from_rows_equal_the_stored_users(house: House) -> None:
    with house.context.store.read() as conn:
        users: list[User] = stored.list_users(conn)
        assert users == [stored.find_user(conn, user.name) for user in users]


@pytest.mark.parametrize(
    ("name", "days", "said"), [("", 1, "name: must"), ("a", 0, "days: must be between 1 and 366")]
)
def test_the_message_names_the_problems_of_a_token(house: House, name: str, days: int, said: str) -> None:
    with pytest.raises(Invalid) as caught:
        tokens.create_token(house.context, house.root, name, days)
    assert said in caught.value.message


def test_an_admin_sees_what_an_account_keeps_going(site: Site) -> None:
    site.person("carol")
    waiting = site.add_job(1, user="carol")
    running = site.add_job(2, user="carol", state=JobState.RUNNING, attempt=1)
    site.add_job(3, user="root")
    work = get_owned_work(site.context, site.root, "carol")
    assert (work.running_jobs, work.waiting_jobs) == ((running.id,), (waiting.id,))


def test_only_admins_see_what_an_account_keeps_going(site: Site) -> None:
    carol = site.person("carol")
    with pytest.raises(Forbidden):
        get_owned_work(site.context, carol, "carol")
    with pytest.raises(NotFound):
        get_owned_work(site.context, site.root, "nemo")
