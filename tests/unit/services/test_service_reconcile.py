"""Reconciliation of services, with jobs that a test starts and ends."""

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliostat.api.validation import read_job
from heliostat.errors import Forbidden, NotFound
from heliostat.models import Caller, Job, JobState, Node
from heliostat.models.services import ReplicaHealth, ServiceState, ServiceVisibility
from heliostat.services.accounts.users import UserChange, update_user
from heliostat.services.context import ReplicaTraffic
from heliostat.services.web_services import lifecycle as web_services
from heliostat.services.web_services.health import HealthProber
from heliostat.services.web_services.lifecycle import ServiceView
from heliostat.services.web_services.reconcile import reconcile_services
from heliostat.services.web_services.service_requests import ServiceRequest
from heliostat.store import job_writes
from heliostat.store import jobs as stored_jobs
from support.fake_engines import FilesEngine
from unit.services.site import Machines, Site


class FakeController:
    def count_unfinished_jobs(self, user: str) -> int:
        return 0

    def wait_reason(self, job: Job) -> str:
        return "was just submitted"


class PortMachines(Machines, FilesEngine):
    """Its jobs run, but none has reported its port yet."""

    session_port: Any = staticmethod(lambda attempt: None)

    def __init__(self, found: list[Node], home: Path) -> None:
        FilesEngine.__init__(self, home)
        self.found = found


class NoLooks:
    """Makes no probes: tests set the health of replicas."""

    def __init__(self) -> None:
        self.verdicts: dict[int, tuple[ReplicaHealth, str]] = {}

    def poll_replica(
        self, context: object, service: object, replica: Any, job: Job
    ) -> tuple[ReplicaHealth, str] | None:
        return self.verdicts.pop(job.id, None)

    def seconds_until_next_probe(self, attempts: object) -> float:
        return 60.0

    def keep_only(self, jobs: object) -> None:
        pass


class Stage:
    """A service and its reconciliation."""

    def __init__(self, site: Site) -> None:
        self.site, self.context, self.looks = site, site.context, NoLooks()
        changed = cast(SimpleNamespace, site.context)
        changed.controller = FakeController()
        changed.engine = PortMachines(site.machines.found, site.context.settings.home.path)
        changed.traffic = ReplicaTraffic()

    def create(self, replicas: int = 1, caller: Caller | None = None, **fields: Any) -> None:
        wish = ServiceRequest("web", read_job({"command": ["serve", "{port}"]}), replicas, **fields)
        web_services.create_service(self.context, caller or self.site.root, wish)

    def tend(self) -> None:
        reconcile_services(self.context, cast(HealthProber, self.looks))

    def view(self) -> ServiceView:
        return web_services.show_service(self.context, self.site.root, "web")

    def jobs(self, *words: str) -> list[int]:
        """Jobs of replicas in these states; default: all unfinished ones."""
        found = [
            one for one in self.view().replicas if one.status in words or (not words and one.status != "over")
        ]
        return sorted(one.replica.job_id for one in found)

    def run(self, *job_ids: int) -> None:
        for number in job_ids:
            self._set(number, state=JobState.RUNNING, attempt=1, started_at=self.site.clock.at, node="n1")
            self.looks.verdicts[number] = (ReplicaHealth.HEALTHY, "")
        self.tend()

    def end(self, number: int, state: JobState = JobState.FAILED, reason: str = "exit code 1") -> None:
        self._set(number, state=state, ended_at=self.site.clock.at, reason=reason)
        self.tend()

    def job(self, number: int) -> Job:
        with self.context.store.read() as conn:
            found = stored_jobs.get_job(conn, number)
        assert found is not None
        return found

    def _set(self, number: int, **values: Any) -> None:
        self.context.store.write(lambda tx: job_writes.update_job(tx, number, values))


@pytest.fixture
def stage(site: Site) -> Stage:
    return Stage(site)


def test_each_replica_is_a_job_of_its_owner_with_the_service_in_its_env(stage: Stage) -> None:
    stage.create(2)
    stage.tend()
    stage.tend()
    first, second = stage.jobs("waiting")
    job = stage.job(first)
    assert (job.kind, job.name, job.user) == ("service", "web", "root")
    assert job.spec.command == ("service", "serve", "{port}")
    assert job.spec.env["HELIOSTAT_SERVICE"] == "web"
    stage.run(first, second)
    assert stage.view().summary == "2 of 2 replicas are healthy."


def test_concurrent_reconciliations_start_no_replica_twice(stage: Stage) -> None:
    stage.create(3)
    threads = [threading.Thread(target=stage.tend) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(stage.jobs()) == 3
    with stage.context.store.read() as conn:
        assert len(stored_jobs.list_jobs(conn, stored_jobs.JobFilter(), 100)) == 3


def test_repeated_failures_increase_the_backoff(stage: Stage) -> None:
    stage.create()
    stage.tend()
    for wait in (1, 2, 4):
        (number,) = stage.jobs()
        stage.end(number)
        assert stage.jobs() == []
        stage.site.clock.turn(seconds=wait - 0.5)
        stage.tend()
        assert stage.jobs() == []
        stage.site.clock.turn(seconds=0.5)
        stage.tend()
        assert len(stage.jobs()) == 1
    (number,) = stage.jobs()
    stage.end(number)
    view = stage.view()
    assert (
        view.summary
        == "0 of 1 replicas are healthy. Crash loop: the service failed 4 times in a row; next try in 8 seconds."
    )
    assert view.service.problem == f"job {number}: exit code 1"
    web_services.restart_service(stage.context, stage.site.root, "web")
    stage.tend()
    assert len(stage.jobs("waiting")) == 1


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.TIMED_OUT])
def test_a_cancelled_or_timed_out_replica_is_replaced_at_once(stage: Stage, state: JobState) -> None:
    stage.create()
    stage.tend()
    (number,) = stage.jobs()
    stage.run(number)
    stage.end(number, state, "its time was over")
    stage.tend()
    assert stage.jobs("waiting") != [number]
    assert len(stage.jobs("waiting")) == 1
    assert stage.view().service.failures == 0


def test_a_replica_that_drains_is_stopped_when_its_requests_are_answered(stage: Stage) -> None:
    stage.create()
    stage.tend()
    (number,) = stage.jobs()
    stage.run(number)
    with stage.context.traffic.track_request(number):
        web_services.stop_service(stage.context, stage.site.root, "web")
        stage.tend()
        stage.site.clock.turn(seconds=10)
        stage.tend()
        assert stage.jobs("draining") == [number]
        assert stage.job(number).stop_requested is None
    stage.tend()
    assert stage.job(number).stop_requested == "cancel"
    stage.end(number, JobState.CANCELLED)
    view = stage.view()
    assert (view.summary, view.service.state) == ("The service is stopped.", ServiceState.STOPPED)
    web_services.remove_service(stage.context, stage.site.root, "web")
    with pytest.raises(NotFound):
        stage.view()


def test_slow_requests_do_not_block_draining(stage: Stage) -> None:
    stage.create(drain_seconds=20)
    stage.tend()
    (number,) = stage.jobs()
    stage.run(number)
    web_services.stop_service(stage.context, stage.site.root, "web")
    with stage.context.traffic.track_request(number):
        stage.tend()
        stage.site.clock.turn(seconds=20)
        stage.tend()
        assert stage.job(number).stop_requested == "cancel"


def test_health_of_an_earlier_attempt_does_not_count(stage: Stage) -> None:
    stage.create()
    stage.tend()
    (number,) = stage.jobs()
    stage.run(number)
    assert stage.jobs("healthy") == [number]
    stage._set(number, attempt=2)
    stage.tend()
    assert stage.jobs("starting") == [number]


def test_a_refused_replica_is_reported_and_retried(stage: Stage) -> None:
    person = stage.site.person("alice")
    alice = replace(
        person, user=update_user(stage.context, stage.site.root, "alice", UserChange(unix_user="alice"))
    )
    stage.create(caller=alice)
    update_user(stage.context, stage.site.root, "alice", UserChange(active=False))
    stage.tend()
    view = stage.view()
    assert view.service.problem == "the submission of a replica failed: the account alice is deactivated"
    assert view.replicas == ()
    update_user(stage.context, stage.site.root, "alice", UserChange(active=True))
    stage.site.clock.turn(seconds=31)
    stage.tend()
    assert len(stage.jobs("waiting")) == 1


def test_who_may_see_use_and_change_it(stage: Stage) -> None:
    stage.site.project("vision")
    stage.create()
    bob = stage.site.person("bob", "vision")
    with pytest.raises(NotFound):
        web_services.show_service(stage.context, bob, "web")
    web_services.scale_service(stage.context, stage.site.root, "web", visibility=ServiceVisibility.PUBLIC)
    assert web_services.show_service(stage.context, bob, "web").service.name == "web"
    for change in (web_services.stop_service, web_services.restart_service, web_services.remove_service):
        with pytest.raises(Forbidden):
            change(stage.context, bob, "web")
