"""Lifetime of browser logins, and one-time login codes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from heliostat.auth.authentication import Authenticator
from heliostat.auth.web_logins import IDLE_TIMEOUT, LOGIN_CODE_LIFETIME, LOGIN_LIFETIME, LoggedInBrowser
from heliostat.config import Home, Settings
from heliostat.errors import Forbidden, NotAuthenticated
from heliostat.models import Caller
from heliostat.services.accounts import web_logins
from heliostat.services.accounts.users import set_password
from heliostat.services.accounts.web_logins import BrowserClient
from heliostat.services.context import Context
from heliostat.store import accounts
from unit.auth.stand_ins import CHEAP_PASSWORDS, ROOT, Clock, FakeUnix, new_store

HERE = BrowserClient("10.0.0.9", "a browser")
IDLE_HOURS = IDLE_TIMEOUT.total_seconds() / 3600


@dataclass
class Door:
    context: Context
    clock: Clock
    root: Caller

    def enter(self) -> str:
        code, _ = web_logins.create_login_code(self.context, self.root)
        return web_logins.log_in_browser_by_code(self.context, code, HERE)

    def holder(self, secret: str, in_use: bool = True, address: str | None = HERE.address) -> LoggedInBrowser:
        return self.context.authenticator.web_logins.require_browser(secret, address=address, in_use=in_use)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    clock = Clock()
    with new_store(tmp_path) as store:
        settings = Settings(Home(tmp_path))
        authenticator = Authenticator(store, settings.auth, clock, FakeUnix(), CHEAP_PASSWORDS)
        parts = SimpleNamespace(settings=settings, store=store, authenticator=authenticator, now=clock)
        yield Door(cast(Context, parts), clock, Caller(authenticator.authenticate_peer(ROOT), "socket", "local"))
        authenticator.close()


def test_an_unused_login_ends_after_12_hours(door: Door) -> None:
    secret = door.enter()
    door.clock.turn(hours=IDLE_HOURS - 0.1)
    door.holder(secret, in_use=False)
    door.clock.turn(hours=0.2)
    with pytest.raises(NotAuthenticated):
        door.holder(secret)


def test_automatic_refreshes_do_not_extend_a_login(door: Door) -> None:
    secret = door.enter()
    for _ in range(int(IDLE_HOURS)):
        door.clock.turn(hours=1)
        door.holder(secret, in_use=False)
    door.clock.turn(minutes=1)
    with pytest.raises(NotAuthenticated):
        door.holder(secret, in_use=False)


def test_a_login_in_use_ends_after_seven_days(door: Door) -> None:
    secret = door.enter()
    for _ in range(LOGIN_LIFETIME.days * 4 - 1):
        door.clock.turn(hours=6)
        door.holder(secret)
        door.context.store.write(lambda tx: None)  # what was only ordered is carried out by now
        door.context.authenticator.web_logins.clear_cache()
    door.clock.turn(hours=6)
    with pytest.raises(NotAuthenticated):
        door.holder(secret)


def test_a_login_code_works_once(door: Door) -> None:
    code, lasts = web_logins.create_login_code(door.context, door.root)
    assert lasts == LOGIN_CODE_LIFETIME
    web_logins.log_in_browser_by_code(door.context, code, HERE)
    with pytest.raises(NotAuthenticated, match="already used"):
        web_logins.log_in_browser_by_code(door.context, code, HERE)


def test_a_login_code_expires_after_five_minutes(door: Door) -> None:
    code, _ = web_logins.create_login_code(door.context, door.root)
    door.clock.turn(seconds=LOGIN_CODE_LIFETIME.total_seconds() + 1)
    with pytest.raises(NotAuthenticated, match="has expired"):
        web_logins.log_in_browser_by_code(door.context, code, HERE)


def test_a_code_of_a_deactivated_user_is_refused(door: Door) -> None:
    code, _ = web_logins.create_login_code(door.context, door.root)
    door.context.store.write(lambda tx: accounts.update_user(tx, "root", active=False))
    door.context.authenticator.clear_caches()
    with pytest.raises((Forbidden, NotAuthenticated)):
        web_logins.log_in_browser_by_code(door.context, code, HERE)


def test_many_codes_of_one_user_do_not_affect_other_users(door: Door) -> None:
    code, _ = web_logins.create_login_code(door.context, door.root)
    codes = [door.context.authenticator.web_logins.create_code("mallory") for _ in range(2000)]
    assert web_logins.log_in_browser_by_code(door.context, code, HERE)
    redeem = door.context.authenticator.web_logins.redeem_code
    assert redeem(codes[-1]) == "mallory"
    with pytest.raises(NotAuthenticated):
        redeem(codes[0])


@pytest.mark.parametrize("ends", ["password", "everywhere"])
def test_ending_all_logins_also_ends_unused_codes(door: Door, ends: str) -> None:
    code, _ = web_logins.create_login_code(door.context, door.root)
    if ends == "password":
        set_password(door.context, door.root, door.root.user.name, "a new long password")
    else:
        web_logins.log_out_all_browsers(door.context, door.root)
    with pytest.raises(NotAuthenticated):
        web_logins.log_in_browser_by_code(door.context, code, HERE)


def test_logging_out_everywhere_ends_every_browser(door: Door) -> None:
    secrets = [door.enter() for _ in range(3)]
    web_logins.log_out_all_browsers(door.context, Caller(door.root.user, "web", "10.0.0.9"))
    for secret in secrets:
        with pytest.raises(NotAuthenticated):
            door.holder(secret)
    door.holder(door.enter())


def test_a_chosen_cookie_never_becomes_a_login(door: Door) -> None:
    with pytest.raises(NotAuthenticated):
        door.holder("chosen-by-somebody-else")
    assert door.enter() != "chosen-by-somebody-else"
    with pytest.raises(NotAuthenticated):
        door.holder("chosen-by-somebody-else")


def test_a_copied_cookie_is_worthless_at_another_address_unless_it_was_encrypted(door: Door) -> None:
    secret = door.enter()
    for address in ("10.0.0.8", "127.0.0.1", f"{HERE.address} (uid 1000)"):
        with pytest.raises(NotAuthenticated):
            door.holder(secret, address=address)
    assert door.holder(secret, address=None)
    assert door.holder(secret)
