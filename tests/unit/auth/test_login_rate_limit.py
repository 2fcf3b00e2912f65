import re

import pytest

from heliostat.auth.login_rate_limit import (
    FAILURE_MEMORY_SECONDS,
    FREE_FAILURES,
    FREE_FAILURES_FROM_UNKNOWN_CLIENTS,
    MAX_DELAY_SECONDS,
    LoginRateLimiter,
)
from heliostat.errors import TooManyRequests

HERE, THERE = "10.0.0.1", "10.0.0.2"


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


def log_in(limiter: LoginRateLimiter, name: str, address: str) -> None:
    limiter.login_succeeded(limiter.begin_login(name, address))


def test_five_failures_are_free_then_the_delay_grows_up_to_a_bound(
    limiter: LoginRateLimiter, clock: Clock
) -> None:
    waits = []
    for _ in range(20):
        waits.append(wait_for(limiter, "alice", HERE))
        if waits[-1]:
            clock.at += waits[-1]
            assert wait_for(limiter, "alice", HERE) == 0
    assert waits[:5] == [0] * 5
    assert waits[5:10] == [1, 2, 4, 8, 16]
    assert max(waits) == waits[-1] == MAX_DELAY_SECONDS


def test_tries_during_the_delay_do_not_make_it_longer(limiter: LoginRateLimiter) -> None:
    for _ in range(5):
        limiter.begin_login("alice", HERE)
    assert {wait_for(limiter, "alice", HERE) for _ in range(50)} == {1}


def test_failures_with_other_names_lock_out_no_one_at_the_same_address(limiter: LoginRateLimiter) -> None:
    for number in range(1000):
        limiter.begin_login(f"made-up-{number}", HERE)
        wait_for(limiter, None, HERE)
    assert wait_for(limiter, "alice", HERE) == 0


def test_failures_elsewhere_lock_out_no_one(limiter: LoginRateLimiter) -> None:
    assert [wait_for(limiter, "alice", THERE) for _ in range(6)] == [0, 0, 0, 0, 0, 1]
    assert wait_for(limiter, "alice", HERE) == 0


def test_each_unix_user_of_this_machine_counts_alone(limiter: LoginRateLimiter) -> None:
    for _ in range(6):
        wait_for(limiter, "alice", "127.0.0.1 (uid 1001)")
    assert wait_for(limiter, "alice", "127.0.0.1 (uid 1001)") > 0
    assert wait_for(limiter, "alice", "127.0.0.1 (uid 1000)") == 0


def test_guesses_from_many_addresses_are_slowed_down_but_not_the_owner(limiter: LoginRateLimiter) -> None:
    log_in(limiter, "alice", HERE)
    free = FREE_FAILURES_FROM_UNKNOWN_CLIENTS
    waits = [wait_for(limiter, "alice", f"10.1.0.{number}") for number in range(free + 1)]
    assert waits == [0] * free + [1]
    assert wait_for(limiter, "alice", HERE) == 0
    assert wait_for(limiter, "bob", THERE) == 0


def test_success_clears_the_failures_of_this_client_only(limiter: LoginRateLimiter) -> None:
    for address in (HERE, THERE):
        for _ in range(FREE_FAILURES - 1):
            limiter.begin_login("alice", address)
    log_in(limiter, "alice", HERE)
    assert [wait_for(limiter, "alice", HERE) for _ in range(FREE_FAILURES)] == [0] * FREE_FAILURES
    assert [wait_for(limiter, "alice", THERE) for _ in range(2)] == [0, 1]


def test_one_who_holds_a_whole_ipv6_network_is_one_client(limiter: LoginRateLimiter) -> None:
    for number in range(FREE_FAILURES):
        limiter.begin_login("alice", f"2001:db8::{number:x}")
    assert wait_for(limiter, "alice", "2001:db8::ffff") > 0
    assert wait_for(limiter, "alice", "2001:db8:0:1::1") == 0


def test_an_attempt_without_an_answer_does_not_count(limiter: LoginRateLimiter) -> None:
    for _ in range(100):
        limiter.login_aborted(limiter.begin_login("alice", HERE))
    assert wait_for(limiter, "alice", HERE) == 0


def test_failures_are_forgotten_after_a_quiet_time(limiter: LoginRateLimiter, clock: Clock) -> None:
    for _ in range(5):
        limiter.begin_login("alice", HERE)
    clock.at += FAILURE_MEMORY_SECONDS
    for _ in range(5):
        assert wait_for(limiter, "alice", HERE) == 0


def test_a_clock_set_back_locks_nobody_out_for_longer(limiter: LoginRateLimiter, clock: Clock) -> None:
    for _ in range(5):
        limiter.begin_login("alice", HERE)
    clock.at -= 500.0
    assert wait_for(limiter, "alice", HERE) == 1


def test_memory_stays_bounded_whatever_names_and_addresses_come(limiter: LoginRateLimiter) -> None:
    for number in range(1000):
        log_in(limiter, f"user{number}", f"10.0.{number // 256}.{number % 256}")
        limiter.begin_login(f"made-up{number}", f"10.0.{number // 256}.{number % 256}")
        sizes = (len(limiter._pairs._failures), len(limiter._names._failures), len(limiter._familiar))
        assert max(sizes) <= 100
