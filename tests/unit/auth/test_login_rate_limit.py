import re

import pytest

from heliostat.auth.login_rate_limit import (
    FAILURE_MEMORY_SECONDS,
    FREE_FAILURES_PER_ADDRESS,
    MAX_DELAY_SECONDS,
    LoginRateLimiter,
)
from heliostat.errors import TooManyRequests


class Clock:
    at = 1000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limiter(clock: Clock) -> LoginRateLimiter:
    return LoginRateLimiter(clock, size=100)


def wait_for(limiter: LoginRateLimiter, name: str | None, address: str) -> int:
    """0 if it may try (and then did, and failed)."""
    try:
        limiter.begin_login(name, address)
    except TooManyRequests as error:
        found = re.search(r"\d+", error.hint or "")
        assert found
        return int(found.group())
    return 0


def test_five_failures_are_free_then_the_delay_grows_up_to_a_bound(
    limiter: LoginRateLimiter, clock: Clock
) -> None:
    waits = []
    for number in range(20):
        address = f"10.0.0.{number}"
        waits.append(wait_for(limiter, "alice", address))
        if waits[-1]:
            clock.at += waits[-1]
            assert wait_for(limiter, "alice", address) == 0
    assert waits[:5] == [0] * 5
    assert waits[5:10] == [1, 2, 4, 8, 16]
    assert max(waits) == waits[-1] == MAX_DELAY_SECONDS


def test_tries_during_the_delay_do_not_make_it_longer(limiter: LoginRateLimiter) -> None:
    for _ in range(5):
        limiter.begin_login("alice", "10.0.0.1")
    assert {wait_for(limiter, "alice", "10.0.0.1") for _ in range(50)} == {1}


def test_success_clears_the_name_but_not_what_the_address_did_to_others(limiter: LoginRateLimiter) -> None:
    for number in range(FREE_FAILURES_PER_ADDRESS - 1):
        limiter.begin_login(f"victim{number}", "10.0.0.1")
        assert wait_for(limiter, "mallory", "10.0.0.1") == 0
        limiter.login_succeeded("mallory", "10.0.0.1")
    limiter.begin_login("last", "10.0.0.1")
    assert wait_for(limiter, "mallory", "10.0.0.1") > 0
    assert wait_for(limiter, "mallory", "10.0.0.2") == 0


def test_one_who_holds_a_whole_ipv6_network_is_one_address(limiter: LoginRateLimiter) -> None:
    for number in range(FREE_FAILURES_PER_ADDRESS):
        limiter.begin_login(f"user{number}", f"2001:db8::{number:x}")
    assert wait_for(limiter, "another", "2001:db8::ffff") > 0
    assert wait_for(limiter, "another", "2001:db8:0:1::1") == 0


def test_an_ipv4_address_is_the_same_in_its_ipv6_spelling(limiter: LoginRateLimiter) -> None:
    for number in range(FREE_FAILURES_PER_ADDRESS):
        limiter.begin_login(f"user{number}", "10.0.0.1")
    assert wait_for(limiter, "another", "::ffff:10.0.0.1") > 0


def test_an_attempt_without_an_answer_does_not_count(limiter: LoginRateLimiter) -> None:
    for _ in range(50):
        limiter.begin_login("alice", "10.0.0.1")
        limiter.login_aborted("alice", "10.0.0.1")
    assert wait_for(limiter, "alice", "10.0.0.1") == 0


def test_failures_are_forgotten_after_a_quiet_time(limiter: LoginRateLimiter, clock: Clock) -> None:
    for _ in range(5):
        limiter.begin_login("alice", "10.0.0.1")
    clock.at += FAILURE_MEMORY_SECONDS
    for _ in range(5):
        assert wait_for(limiter, "alice", "10.0.0.1") == 0


def test_a_clock_set_back_locks_nobody_out_for_longer(limiter: LoginRateLimiter, clock: Clock) -> None:
    for _ in range(5):
        limiter.begin_login("alice", "10.0.0.1")
    clock.at -= 500.0
    assert wait_for(limiter, "alice", "10.0.0.1") == 1


def test_memory_stays_bounded_whatever_names_and_addresses_come(limiter: LoginRateLimiter) -> None:
    for number in range(1000):
        limiter.begin_login(f"user{number}", f"10.0.{number // 256}.{number % 256}")
        limiter_sizes = (len(limiter._names._failures), len(limiter._addresses._failures))
        assert max(limiter_sizes) <= 100
