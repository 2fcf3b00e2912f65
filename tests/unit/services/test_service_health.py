"""Health checks of replicas: changes of health, and no wake-up without a change."""

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliostat.models import JobRequest, JobSpec, JobState
from heliostat.models.services import HealthCheck, Replica, ReplicaHealth, Service, ServiceState, ServiceVisibility
from heliostat.services.context import Context
from heliostat.services.web_services.health import HealthProber, HealthProbeResult, evaluate_health
from unit.services.site import a_job

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SERVICE = Service(
    *(
        1,
        "web",
        "ann",
        "p",
        ServiceState.ACTIVE,
        JobRequest(JobSpec(("true",))),
        1,
        ServiceVisibility.PRIVATE,
        "s",
        NOW,
    ),
    check=HealthCheck("/", interval_seconds=1, threshold=2, grace_seconds=30),
)
JOB = replace(a_job(7, NOW), state=JobState.RUNNING, attempt=1, started_at=NOW)
STARTING = Replica(7, 1, 1, NOW)
HEALTHY = replace(STARTING, health=ReplicaHealth.HEALTHY, attempt=1, healthy_at=NOW)


@pytest.mark.parametrize(
    ("replica", "problem", "failed", "seconds", "expected"),
    [
        (STARTING, "", 0, 1, ReplicaHealth.HEALTHY),
        (STARTING, "refused", 9, 30, None),
        (STARTING, "refused", 9, 31, ReplicaHealth.UNHEALTHY),
        (HEALTHY, "", 0, 1, None),
        (HEALTHY, "500", 1, 1, None),
        (HEALTHY, "500", 2, 1, ReplicaHealth.UNHEALTHY),
        (replace(HEALTHY, attempt=0), "500", 5, 1, None),  # that was an earlier attempt
        (replace(HEALTHY, health=ReplicaHealth.UNHEALTHY), "", 0, 1, None),
        (replace(HEALTHY, draining_at=NOW), "500", 5, 1, None),
    ],
)
def test_health_changes_by_a_probe(
    replica: Replica, problem: str, failed: int, seconds: int, expected: ReplicaHealth | None
) -> None:
    verdict = evaluate_health(
        SERVICE, replica, JOB, HealthProbeResult(problem, failed, NOW + timedelta(seconds=seconds))
    )
    assert (verdict[0] if verdict else None) == expected
    assert verdict is None or problem in verdict[1]


@pytest.mark.parametrize(
    ("replica", "problem", "wakes"), [(HEALTHY, "", 0), (HEALTHY, "500", 1), (STARTING, "", 1)]
)
def test_only_changes_of_health_wake_the_loop(replica: Replica, problem: str, wakes: int) -> None:
    woken: list[int] = []
    looked = threading.Event()

    def look(*_: Any) -> str:
        looked.set()
        return problem

    looks = HealthProber(look, lambda: woken.append(1))
    context = cast(Context, SimpleNamespace(now=lambda: NOW))
    assert looks.poll_replica(context, SERVICE, replica, JOB) is None
    assert looked.wait(120)
    looks.close(wait=True)
    assert len(woken) == wakes
    assert 0 < looks.seconds_until_next_probe([JOB.attempt_id]) <= 1.5
