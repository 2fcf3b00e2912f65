import threading

import pytest
from argon2 import extract_parameters

from heliostat.auth import passwords
from heliostat.auth.passwords import hash_password, verify_password
from heliostat.errors import Invalid, TooManyRequests


def test_a_password_opens_only_its_own_hash() -> None:
    hashed = hash_password("correct horse battery")
    assert hashed.startswith("$argon2id$")
    assert "correct" not in hashed
    assert verify_password("correct horse battery", hashed)
    assert not verify_password("correct horse batterx", hashed)


@pytest.mark.parametrize("password", ["", "short", "x" * 9, "x" * 1025, "x" * 100_000, "lone \ud800 surrogate"])
def test_a_password_that_cannot_be_is_refused_with_its_field(password: str) -> None:
    with pytest.raises(Invalid) as caught:
        hash_password(password)
    assert "password" in caught.value.fields


def test_the_longest_password_counts_to_its_last_letter() -> None:
    hashed = hash_password("x" * 1024)
    assert verify_password("x" * 1024, hashed)
    assert not verify_password("x" * 1023 + "y", hashed)


def test_an_accent_typed_in_another_way_is_the_same_password() -> None:
    assert verify_password("cafe\u0301 au lait", hash_password("caf\u00e9 au lait"))


@pytest.mark.parametrize("password", ["", "x" * 100_000, "\ud800", "nul\0inside it"])
def test_nothing_opens_an_account_without_a_password(password: str) -> None:
    assert not verify_password(password, None)


def test_a_damaged_hash_opens_to_nobody() -> None:
    assert not verify_password("whatever it is", "not a hash")


def test_an_unknown_account_costs_the_work_of_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = hash_password("correct horse battery")
    tried: list[str] = []
    real = passwords._hasher

    class Watched:
        def verify(self, against: str, password: str) -> bool:
            tried.append(against)
            return real.verify(against, password)

    monkeypatch.setattr(passwords, "_hasher", Watched())
    for given in (hashed, None, ""):
        assert not verify_password("a wrong password", given)
    assert not verify_password("x" * 100_000, hashed)
    assert len(tried) == 4
    assert all(extract_parameters(each) == extract_parameters(hashed) for each in tried)


def test_a_crowd_is_turned_away_instead_of_taking_all_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "_PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(passwords, "_seats", threading.BoundedSemaphore(1))
    with passwords._seat(), pytest.raises(TooManyRequests):
        verify_password("whatever it is", None)
    assert not verify_password("whatever it is", None)
