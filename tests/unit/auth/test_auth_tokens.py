import hashlib

import pytest

from heliostat.auth.authentication import generate_token, is_token_format, token_digest


def test_a_token_is_long_random_and_known_by_its_digest() -> None:
    secret, digest = generate_token()
    assert is_token_format(secret)
    assert len(secret) == len("helio_") + 43
    assert digest == token_digest(secret) == hashlib.sha256(secret.encode()).hexdigest()
    assert len({generate_token()[0] for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "text",
    ["", "helio_", "helio_" + "a" * 42, "helio_" + "a" * 44, "helio_" + "a" * 43 + "\n", "helio_" + "\u0430" * 43],
)
def test_what_does_not_look_like_a_token_is_none(text: str) -> None:
    assert not is_token_format(text)
