"""Past submissions, sampled for forecasts."""

from datetime import timedelta
from itertools import islice

from heliostat.models import JobState
from heliostat.scheduling.arrivals import MAX_ARRIVALS, ArrivalHistory
from unit.scheduling.builders import NOW, a_job, a_running_job

DAY = 86400.0
AT = NOW.timestamp()


def submitted(*hours_ago: float) -> ArrivalHistory:
    history = ArrivalHistory()
    for number, hours in enumerate(hours_ago, 1):
        history.add(a_job(number, submitted_at=NOW - timedelta(hours=hours)))
    return history


def test_without_submissions_nothing_arrives() -> None:
    assert list(submitted().sample(AT, 0, 100)) == []


def test_a_day_is_repeated_at_the_same_time_of_day() -> None:
    found = list(islice(submitted(20, 3).sample(AT, 0, 100), 4))
    assert [round((at - AT) / 3600) for at, _ in found] == [4, 21, 28, 45]
    assert [job.id for _, job in found] == [100, 101, 102, 103]
    assert all(job.submitted_at.timestamp() == at for at, job in found)


def test_a_future_day_is_one_of_the_past_days_and_runs_differ() -> None:
    history = submitted(*(24 * day + 12 for day in range(14, -1, -1) for _ in range(day + 1)))
    sizes = set()
    for seed in range(10):
        days: dict[int, int] = {}
        for at, _ in islice(history.sample(AT, seed, 100), 200):
            days[int((at - AT) / DAY)] = days.get(int((at - AT) / DAY), 0) + 1
        complete = list(days.values())[:-1]
        assert all(1 <= size <= 14 for size in complete)
        sizes.add(tuple(complete))
    assert len(sizes) == 10


def test_the_same_seed_gives_the_same_arrivals() -> None:
    history = submitted(70, 40, 30, 5)
    first, second = (list(islice(history.copy().sample(AT, 7, 100), 20)) for _ in range(2))
    assert first == second


def test_a_job_that_runs_arrives_again_as_a_new_one() -> None:
    history = ArrivalHistory([a_running_job(1, "a", submitted_at=NOW - timedelta(hours=2))])
    (_, job) = next(history.sample(AT, 0, 100))
    assert (job.state, job.node, job.started_at, job.attempt) == (JobState.PENDING, None, None, 0)


def test_of_a_flood_the_newest_submissions_are_repeated_at_their_rate() -> None:
    history = ArrivalHistory()
    for number in range(MAX_ARRIVALS + 100):
        history.add(a_job(number, submitted_at=NOW - timedelta(seconds=MAX_ARRIVALS + 100 - number)))
    hour = sum(1 for _ in islice(_until(history.sample(AT, 0, 10_000), AT + 3600), 10_000))
    assert 3500 <= hour <= 3700


def _until(arrivals: object, end: float) -> object:
    for at, job in arrivals:  # type: ignore[attr-defined]
        if at > end:
            return
        yield at, job
