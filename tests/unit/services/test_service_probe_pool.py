"""Slow servers of one user delay only probes of the same user."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from heliostat.models import Job
from heliostat.models.services import ReplicaHealth, Service
from heliostat.services.context import Context
from heliostat.services.web_services.health import MAX_PROBES_PER_USER, HealthProber, ProbePool
from support.waiting import wait_until
from unit.services.test_service_health import JOB, NOW, SERVICE, STARTING

CONTEXT = cast(Context, SimpleNamespace(now=lambda: NOW))
BOBS = replace(SERVICE, id=2, name="other", user="bob")


@pytest.fixture
def held() -> Iterator[threading.Event]:
    """What the slow wait for."""
    event = threading.Event()
    yield event
    event.set()


def test_slow_services_of_one_user_do_not_delay_probes_of_another(held: threading.Event) -> None:
    began: list[int] = []

    def look(_: Context, service: Service, job: Job) -> str:
        began.append(job.id)
        if service.user == "ann":
            held.wait(60)
        return ""

    looks = HealthProber(look)
    for number in range(100, 150):
        job = replace(JOB, id=number)
        looks.poll_replica(CONTEXT, SERVICE, replace(STARTING, job_id=number), job)
    assert looks.poll_replica(CONTEXT, BOBS, STARTING, JOB) is None
    verdict = wait_until(lambda: looks.poll_replica(CONTEXT, BOBS, STARTING, JOB), "a verdict on bob's", 60)
    assert verdict == (ReplicaHealth.HEALTHY, "")
    assert len([number for number in began if number >= 100]) <= MAX_PROBES_PER_USER
    held.set()
    looks.close(wait=True)


def test_all_probes_of_a_user_run_eventually() -> None:
    lanes = ProbePool()
    looked = [lanes.submit("ann", lambda number=number: str(number)) for number in range(3 * MAX_PROBES_PER_USER)]
    assert [one.result(60) for one in looked] == [str(number) for number in range(3 * MAX_PROBES_PER_USER)]
    lanes.close(wait=True)


def test_threads_end_with_the_last_replica_of_their_user() -> None:
    lanes = ProbePool()
    seen: list[threading.Thread] = []
    for user in ("ann", "bob"):
        lanes.submit(user, lambda: str(seen.append(threading.current_thread()))).result(60)
    lanes.keep_users({"bob"})
    seen[0].join(60)
    assert [thread.is_alive() for thread in seen] == [False, True]
    assert lanes.submit("ann", lambda: "again").result(60) == "again"
    lanes.close(wait=True)
    assert not seen[1].is_alive()
