from dataclasses import replace
from datetime import UTC, datetime, timedelta

from heliostat.models import AttemptRecord, Job, JobEvent, JobSpec, JobState, Resources
from heliostat.services.jobs.job_history import JobHistory
from heliostat.web.job_page.timeline import build_timeline

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script>"


def _at(minutes: float) -> datetime:
    return BEGIN + timedelta(minutes=minutes)


def _job(**fields: object) -> Job:
    job = Job(
        7, "batch", "a", JobState.RUNNING, "ann", "ann", "p", Resources(), JobSpec(("true",)), BEGIN, attempt=2
    )
    return replace(job, **fields)  # type: ignore[arg-type]


def _events(*told: tuple[float, str, JobState]) -> tuple[JobEvent, ...]:
    return tuple(JobEvent(n, 7, 1, _at(at), kind, state, HOSTILE) for n, (at, kind, state) in enumerate(told, 1))


def _story() -> JobHistory:
    events = _events(
        (0, "submitted", JobState.PENDING),
        (10, "starting", JobState.STARTING),
        (11, "running", JobState.RUNNING),
        (41, "preempted", JobState.PENDING),
        (61, "starting", JobState.STARTING),
        (62, "running", JobState.RUNNING),
    )
    first = AttemptRecord(
        7, 1, "n1", (), JobState.PREEMPTED, _at(10), _at(11), _at(41), 143, "job 9 needs its resources"
    )
    second = AttemptRecord(7, 2, "n2", (), JobState.RUNNING, _at(61), _at(62))
    return JobHistory(_job(), (first, second), events)


def test_the_life_of_a_job_is_told_by_state_and_attempt() -> None:
    told = build_timeline(_story(), _at(72), 2)
    assert {phase.state: phase.seconds / 60 for phase in told.state_durations} == {
        "pending": 30,
        "starting": 2,
        "running": 40,
    }
    assert {phase.state: phase.since for phase in told.state_durations if phase.since} == {"running": _at(32)}
    first, second = told.attempts
    assert (first.waited_seconds, first.ran_seconds, first.outcome) == (600, 1800, "job 9 needs its resources")
    assert (second.waited_seconds, second.ran_seconds, second.running_since) == (1200, 600, _at(62))
    assert (first.log_url, second.log_url) == ("/jobs/7?attempt=1#log", "")


def test_the_bar_says_the_same_in_words_and_trusts_no_text() -> None:
    told = build_timeline(_story(), _at(72), 2)
    assert "pending 10 min, then starting 1 min, then running 30 min, then pending 20 min" in told.svg
    assert "<script" not in told.svg
    assert told.events[3].description == "preempted, requeued"


def test_a_job_that_was_just_submitted_has_a_bar_too() -> None:
    events = _events((0, "submitted", JobState.PENDING))
    told = build_timeline(JobHistory(_job(state=JobState.PENDING), (), events), BEGIN, 0)
    assert "just submitted" in told.svg
    assert told.attempts == ()


def test_the_end_of_a_job_is_named_by_its_state() -> None:
    events = _events((0, "submitted", JobState.PENDING), (5, "ended", JobState.TIMED_OUT))
    job = _job(state=JobState.TIMED_OUT, ended_at=_at(5))
    told = build_timeline(JobHistory(job, (), events), _at(500), 0)
    assert told.events[-1].description == "timed out"
    assert told.end_at == _at(5)
