import os
import pwd

import pytest

from heliostat.auth.unix_accounts import UnixAccounts


@pytest.mark.parametrize(
    ("uid", "may"),
    [
        (0, True),
        (1, False),
        (999, False),
        (1000, True),
        (65533, True),
        (65534, False),
        (2**32 - 1, False),
        (-1, False),
    ],
)
def test_only_root_and_people_may_have_an_account(uid: int, may: bool) -> None:
    assert UnixAccounts(server_uid=0).may_have_account(uid) is may


def test_the_server_may_have_an_account_whatever_its_uid() -> None:
    assert UnixAccounts(server_uid=123).may_have_account(123)
    assert UnixAccounts(server_uid=123).is_local_admin(123)
    assert not UnixAccounts(server_uid=123).server_is_root


def test_this_process_is_found_by_uid_and_by_name() -> None:
    unix = UnixAccounts()
    me = unix.find_by_uid(os.geteuid())
    assert me is not None
    assert me.name == pwd.getpwuid(os.geteuid()).pw_name
    assert unix.find_by_name(me.name) == me
    assert me.name in unix.local_admin_names()


@pytest.mark.parametrize(
    "name", ["", "no-such-user-here", "nul\0", "\ud800", "root\n", "root:x", "../root", "r\u043eot"]
)
def test_a_name_that_is_nobodys_is_not_found(name: str) -> None:
    assert UnixAccounts().find_by_name(name) is None


@pytest.mark.parametrize("uid", [-1, -5, 2**32 - 7, 2**64, 10**30])
def test_a_uid_that_is_nobodys_is_not_found(uid: int) -> None:
    assert UnixAccounts().find_by_uid(uid) is None


def test_another_name_for_the_same_uid_is_the_same_person(monkeypatch: pytest.MonkeyPatch) -> None:
    alias = pwd.struct_passwd(("toor", "x", 0, 0, "", "/root", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", lambda _name: alias)
    found = UnixAccounts().find_by_name("toor")
    assert found is not None
    assert (found.uid, found.name) == (0, pwd.getpwuid(0).pw_name)
