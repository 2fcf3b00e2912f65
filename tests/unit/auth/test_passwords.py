from typing import Literal

import pytest
from argon2 import PasswordHasher, extract_parameters

from heliostat.auth.passwords import Passwords
from heliostat.errors import Invalid
from unit.auth.stand_ins import CHEAP_PASSWORDS


def test_a_password_opens_only_its_own_hash() -> None:
    hashed = CHEAP_PASSWORDS.hash("correct horse battery", "anna")
    assert hashed.startswith("$argon2id$")
    assert "correct" not in hashed
    assert CHEAP_PASSWORDS.verify("correct horse battery", hashed)
    assert not CHEAP_PASSWORDS.verify("correct horse batterx", hashed)


@pytest.mark.parametrize("password", ["", "short", "x" * 9, "x" * 1025, "x" * 100_000, "lone \ud800 surrogate"])
def test_a_password_that_cannot_be_is_refused_with_its_field(password: str) -> None:
    with pytest.raises(Invalid) as caught:
        CHEAP_PASSWORDS.hash(password, "anna")
    assert "password" in caught.value.fields


def test_the_longest_password_counts_to_its_last_letter() -> None:
    hashed = CHEAP_PASSWORDS.hash("x" * 1023 + "z", "anna")
    assert CHEAP_PASSWORDS.verify("x" * 1023 + "z", hashed)
    assert not CHEAP_PASSWORDS.verify("x" * 1023 + "y", hashed)


def test_an_accent_typed_in_another_way_is_the_same_password() -> None:
    assert CHEAP_PASSWORDS.verify("cafe\u0301 au lait", CHEAP_PASSWORDS.hash("caf\u00e9 au lait", "anna"))


@pytest.mark.parametrize("password", ["", "x" * 100_000, "\ud800", "nul\0inside it"])
def test_nothing_opens_an_account_without_a_password(password: str) -> None:
    assert not CHEAP_PASSWORDS.verify(password, None)


def test_a_damaged_hash_opens_to_nobody() -> None:
    assert not CHEAP_PASSWORDS.verify("whatever it is", "not a hash")


class WatchedHasher(PasswordHasher):
    """Notes which hashes it is asked to verify."""

    def __init__(self) -> None:
        super().__init__()
        self.tried: list[str] = []

    def verify(self, hash: str | bytes, password: str | bytes) -> Literal[True]:  # noqa: A002 - its name there
        self.tried.append(str(hash))
        return super().verify(hash, password)


def test_an_unknown_account_costs_the_work_of_a_known_one() -> None:
    hasher = WatchedHasher()
    passwords = Passwords(hasher)
    hashed = passwords.hash("correct horse battery", "anna")
    for given in (hashed, None, ""):
        assert not passwords.verify("a wrong password", given)
    assert not passwords.verify("x" * 100_000, hashed)
    assert len(hasher.tried) == 4
    assert all(extract_parameters(each) == extract_parameters(hashed) for each in hasher.tried)


@pytest.mark.parametrize("password", ["x" * 20, "annabelle-1", "AnnaBelle-1", "annabelle-1annabelle-1"])
def test_a_password_of_one_character_or_of_the_user_name_is_refused(password: str) -> None:
    with pytest.raises(Invalid) as caught:
        CHEAP_PASSWORDS.hash(password, "annabelle-1")
    assert "password" in caught.value.fields
