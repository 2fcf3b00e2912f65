"""The idle ladder on a database, with samples and a clock that the test turns."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from heliostat.config import FairUseSettings, ServerSettings
from heliostat.engines.contract import HasOwnQueue
from heliostat.errors import Conflict, Forbidden, Invalid
from heliostat.fair_use.ladder import IdlePolicy
from heliostat.models import Caller, Job, JobState, ProjectRole, Resources
from heliostat.models.fair_use import IdleStep
from heliostat.models.samples import job_subject
from heliostat.models.sessions import Session
from heliostat.scheduling.share_report import AccountShare
from heliostat.services.accounts import projects
from heliostat.services.accounts.share_tree import _with_credit
from heliostat.services.context import Context
from heliostat.services.fair_use import idle_ladder
from heliostat.services.fair_use.answers import idle_notice, keep_choices, keep_gpus
from heliostat.services.fair_use.idle_ladder import check_idle_gpus
from heliostat.services.idle_policy import idle_policy
from heliostat.services.jobs.control import cancel_job
from heliostat.store import accounts, idle_jobs, job_writes, jobs
from heliostat.store import sessions as stored_sessions
from heliostat.store.samples import SampleStore
from unit.services.site import Site

ALL = ("note", "message", "manager", "preempt", "end")


@pytest.fixture
def cluster(site: Site, tmp_path: Path) -> Iterator[Site]:
    vars(site.context)["samples"] = SampleStore(tmp_path / "samples.db", 60)
    yield site
    site.context.samples.close()


def rule(site: Site, **values: Any) -> None:
    settings = replace(
        site.context.settings, fair_use=FairUseSettings(**values), server=ServerSettings(time_zone="UTC")
    )
    vars(site.context)["settings"] = settings


def running(site: Site, number: int = 1, **fields: Any) -> Job:
    values = {"state": JobState.RUNNING, "attempt": 1, "started_at": site.clock.at, "node": "n1"}
    values |= {"resources": Resources(gpus=2), "time_limit_seconds": 24 * 3600}
    return site.add_job(number, **(values | fields))


def live(site: Site, minutes: int, percent: float | None = 0.0, *ids: int) -> None:
    """Let this time pass: a sample and a look at all jobs every minute."""
    for _ in range(minutes):
        row = [1.0, 100.0, percent, 10.0, percent, 10.0]
        site.context.samples.add(site.clock.at.timestamp(), {job_subject(job_id): row for job_id in ids or (1,)})
        site.clock.turn(minutes=1)
        check_idle_gpus(site.context)


def kinds(site: Site, number: int = 1) -> list[str]:
    with site.context.store.read() as conn:
        events = jobs.list_events(conn, 0, 1000)
    return [event.kind for event in events if event.job_id == number and event.kind != "submitted"]


def job_of(site: Site, number: int = 1) -> Job:
    with site.context.store.read() as conn:
        job = jobs.get_job(conn, number)
    assert job is not None
    return job


def test_by_default_an_idle_job_gets_a_note_and_messages_and_goes_on(cluster: Site) -> None:
    running(cluster)
    live(cluster, 300)
    assert kinds(cluster) == ["idle_note", "idle", "idle_manager"]
    assert job_of(cluster).stop_requested is None


def test_a_job_that_uses_its_gpus_gets_no_step(cluster: Site) -> None:
    running(cluster)
    live(cluster, 200, 60.0)
    assert kinds(cluster) == []


def test_a_job_without_samples_gets_no_step(cluster: Site) -> None:
    running(cluster)
    live(cluster, 200, None)
    assert kinds(cluster) == []


def test_an_admin_can_have_idle_jobs_ended(cluster: Site) -> None:
    rule(cluster, idle_steps=ALL)
    running(cluster)
    live(cluster, 300)
    assert kinds(cluster) == ["idle_note", "idle", "idle_manager", "cancel_requested"]
    job = job_of(cluster)
    assert job.stop_requested == "cancel"
    assert job.reason == "ended because its 2 GPUs have not been used since 12:00 UTC"


def test_a_preemptible_job_goes_back_to_the_queue(cluster: Site) -> None:
    rule(cluster, idle_steps=ALL)
    running(cluster, preemptible=True)
    live(cluster, 300)
    assert job_of(cluster).stop_requested == "preempt"


def test_a_message_says_what_follows_and_how_to_answer(cluster: Site) -> None:
    running(cluster)
    live(cluster, 70)
    with cluster.context.store.read() as conn:
        note, message = [event for event in jobs.list_events(conn, 0, 100) if event.kind.startswith("idle")]
    assert note.detail == (
        "its 2 GPUs have not been used since 12:00 UTC. "
        "Unless they are used, its owner gets a message at 13:00 UTC. "
        "To keep them: helio keep 1 --for 4h"
    )
    assert message.detail is not None
    assert "the managers of its project get a message at 13:30 UTC" in message.detail


def test_a_step_is_not_repeated_by_a_server_that_was_killed(
    cluster: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the parts of a step, and again after it."""

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    running(cluster)
    live(cluster, 29)
    cluster.context.samples.add(cluster.clock.at.timestamp(), {job_subject(1): [1.0, 1.0, 0.0, 1.0, 0.0, 1.0]})
    cluster.clock.turn(minutes=1)
    for part in ((idle_jobs, "set_idle_state"), (job_writes, "add_job_event")):
        with monkeypatch.context() as patch:
            patch.setattr(*part, die)
            with pytest.raises(KeyboardInterrupt):
                check_idle_gpus(cluster.context)
        assert kinds(cluster) == []
        with cluster.context.store.read() as conn:
            assert idle_jobs.find_idle_state(conn, 1) is None
    for _ in range(3):
        check_idle_gpus(cluster.context)
    assert kinds(cluster) == ["idle_note"]


def test_an_answer_that_comes_while_a_step_is_decided_wins(cluster: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    rule(cluster, idle_steps=ALL)
    running(cluster)
    live(cluster, 119)
    climb = idle_ladder.climb

    def answered_meanwhile(*arguments: Any) -> Any:
        decided = climb(*arguments)
        keep_gpus(cluster.context, cluster.root, 1, cluster.clock.at + timedelta(hours=1))
        return decided

    monkeypatch.setattr(idle_ladder, "climb", answered_meanwhile)
    live(cluster, 1)
    assert job_of(cluster).stop_requested is None


def test_an_answer_stops_the_ladder_until_its_time(cluster: Site) -> None:
    running(cluster)
    live(cluster, 61)
    keep_gpus(cluster.context, cluster.root, 1, cluster.clock.at + timedelta(hours=2))
    live(cluster, 149)
    assert kinds(cluster) == ["idle_note", "idle", "kept"]
    live(cluster, 2)
    assert kinds(cluster)[-1] == "idle_note"
    assert cluster.audit()[0].action == "job.keep"


def test_a_job_has_a_few_answers_of_limited_length(cluster: Site) -> None:
    running(cluster)
    now = cluster.clock.at
    with pytest.raises(Invalid, match="at most 24 hours"):
        keep_gpus(cluster.context, cluster.root, 1, now + timedelta(hours=25))
    with pytest.raises(Invalid, match="not in the future"):
        keep_gpus(cluster.context, cluster.root, 1, now)
    for _ in range(3):
        keep_gpus(cluster.context, cluster.root, 1, now + timedelta(hours=1))
    with pytest.raises(Conflict, match="all its answers"):
        keep_gpus(cluster.context, cluster.root, 1, now + timedelta(hours=1))


def test_answers_are_counted_over_all_attempts_of_a_job(cluster: Site) -> None:
    running(cluster)
    keep_gpus(cluster.context, cluster.root, 1, cluster.clock.at + timedelta(hours=1))
    cluster.context.store.write(
        lambda tx: job_writes.update_job(tx, 1, {"attempt": 2, "started_at": cluster.clock.at})
    )
    live(cluster, 40)
    with cluster.context.store.read() as conn:
        state = idle_jobs.find_idle_state(conn, 1)
    assert state is not None
    assert (state.attempt, state.step, state.answers) == (2, "note", 1)


def test_only_the_owner_and_managers_of_the_project_can_answer(cluster: Site) -> None:
    cluster.project("vision")
    ada, _, eve = (cluster.person(name, "vision") for name in ("ada", "bob", "eve"))
    projects.add_member(cluster.context, cluster.root, "vision", "bob", ProjectRole.MANAGER)
    running(cluster, user="ada", project="vision")
    until = cluster.clock.at + timedelta(hours=1)
    with pytest.raises(Forbidden):
        keep_gpus(cluster.context, eve, 1, until)
    keep_gpus(cluster.context, ada, 1, until)
    with cluster.context.store.read() as conn:
        boss = accounts.find_user(conn, "bob")
    assert boss is not None
    keep_gpus(cluster.context, Caller(boss, "token", "x"), 1, until)


@pytest.mark.parametrize(
    "fields",
    [
        {"state": JobState.PENDING},
        {"stop_requested": "cancel"},
        {"resources": Resources(gpus=0.5)},
        {"kind": "service"},
    ],
)
def test_a_job_that_gets_no_step_needs_no_answer(cluster: Site, fields: dict[str, Any]) -> None:
    running(cluster, **fields)
    with pytest.raises(Conflict):
        keep_gpus(cluster.context, cluster.root, 1, cluster.clock.at + timedelta(hours=1))


def test_the_page_says_what_follows(cluster: Site) -> None:
    rule(cluster)
    running(cluster)
    assert idle_notice(cluster.context, job_of(cluster)) is None
    live(cluster, 31)
    notice = idle_notice(cluster.context, job_of(cluster))
    assert notice is not None
    assert notice.next_step == "Unless they are used, its owner gets a message"
    assert (notice.next_step_at, notice.answers_left) == (cluster.clock.at + timedelta(minutes=29), 3)
    assert [label for label, _ in keep_choices(cluster.context)] == ["1 hour", "4 hours", "tomorrow 9:00"]


def test_a_session_with_a_running_cell_gets_no_step_and_is_never_ended(
    cluster: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule(cluster, idle_steps=ALL)
    running(cluster, kind="session")
    cluster.context.store.write(lambda tx: stored_sessions.add_session(tx, Session(1, "jupyter", "s")))
    activity: list[Any] = [(True, None)]
    monkeypatch.setattr(idle_ladder, "poll_jupyter_activity", lambda *_: activity[-1])
    live(cluster, 100)
    activity.append(None)
    live(cluster, 100)
    assert kinds(cluster) == []
    activity.append((False, None))
    live(cluster, 200)
    assert kinds(cluster) == ["idle_note", "idle", "idle_manager"]


def test_gpus_given_back_after_a_note_are_partly_not_charged(cluster: Site) -> None:
    running(cluster)
    live(cluster, 40)
    cancel_job(cluster.context, cluster.root, 1)
    cancel_job(cluster.context, cluster.root, 1, force=True)
    assert job_of(cluster).credit_gpu_hours == pytest.approx(2 * 40 / 60 / 2)
    with cluster.context.store.read() as conn:
        state = idle_jobs.find_idle_state(conn, 1)
    assert state is not None
    assert state.returned_gpu_hours == pytest.approx(2 * 50 / 60)


def test_a_job_without_a_note_or_ended_by_an_admin_gets_no_credit(cluster: Site) -> None:
    cluster.person("ada")
    running(cluster)
    running(cluster, 2, user="ada")
    live(cluster, 20, 0.0, 1, 2)
    cancel_job(cluster.context, cluster.root, 1)
    live(cluster, 20, 0.0, 2)
    cancel_job(cluster.context, cluster.root, 2)
    assert job_of(cluster, 1).credit_gpu_hours == job_of(cluster, 2).credit_gpu_hours == 0


def test_credit_of_a_week_is_limited(cluster: Site) -> None:
    rule(cluster, credit_gpu_hours_per_week=1.0)
    for number in (1, 2, 3):
        running(cluster, number)
    live(cluster, 40, 0.0, 1, 2, 3)
    for number in (1, 2, 3):
        cancel_job(cluster.context, cluster.root, number)
    given = [job_of(cluster, number).credit_gpu_hours for number in (1, 2, 3)]
    assert given == [pytest.approx(2 / 3), pytest.approx(1 / 3), 0]


def test_states_of_ended_jobs_are_removed_unless_their_gpus_came_back_early(cluster: Site) -> None:
    for number in (1, 2):
        running(cluster, number)
    live(cluster, 40, 0.0, 1, 2)
    cancel_job(cluster.context, cluster.root, 1)
    ended = [
        job_writes.JobTransition(
            number, JobState.CANCELLED, "ended", cluster.clock.at, 1, {"ended_at": cluster.clock.at}
        )
        for number in (1, 2)
    ]
    cluster.context.store.write(lambda tx: job_writes.apply_transitions(tx, ended))
    check_idle_gpus(cluster.context)
    with cluster.context.store.read() as conn:
        assert set(idle_jobs.get_idle_states(conn, [1, 2])) == {1}


def test_the_defaults_of_the_settings_are_those_of_the_policy() -> None:
    assert idle_policy(_context(object())) == IdlePolicy()


def test_on_an_engine_with_its_own_queue_no_job_is_stopped() -> None:
    """The use of its GPUs comes from exporters, which a program of a user can imitate."""
    every_step = {"idle_steps": tuple(step.value for step in IdleStep)}
    assert idle_policy(_context(object(), **every_step)).steps == tuple(IdleStep)
    with_queue = idle_policy(_context(Mock(spec=HasOwnQueue), **every_step))
    assert with_queue.steps == (IdleStep.NOTE, IdleStep.MESSAGE, IdleStep.MANAGER)


def _context(engine: object, **fair_use: Any) -> Context:
    settings = SimpleNamespace(fair_use=FairUseSettings(**fair_use))
    return cast("Context", SimpleNamespace(engine=engine, settings=settings))


def test_credit_of_the_last_week_is_shown_at_its_user_in_its_project(cluster: Site) -> None:
    now = cluster.clock.at
    for number, (hours, ended_at) in enumerate([(2.0, now), (1.0, None), (4.0, now - timedelta(days=8))], 1):
        state = JobState.RUNNING if ended_at is None else JobState.CANCELLED
        cluster.add_job(number, credit_gpu_hours=hours, ended_at=ended_at, state=state)
    users = (AccountShare("user", "root", 1), AccountShare("user", "ada", 1))
    tree = (
        AccountShare(
            "department", "default", 1, children=(AccountShare("project", "default", 1, children=users),)
        ),
    )
    ((project,),) = (department.children for department in _with_credit(cluster.context, tree))
    assert [user.credit for user in project.children] == [3.0, 0.0]
