"""Hints at submission: what earlier jobs with the same name and request used."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from heliostat.models import Caller, Job, JobState, Resources
from heliostat.services.context import ReadCache
from heliostat.services.jobs.usage_hints import find_usage_hints
from heliostat.store import schema
from unit.services.site import Site, a_job

GIB = 1024.0
REQUEST = Resources(cpus=8, memory_mib=64 * 1024)


class PassingTime:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def completed(site: Site, number: int, *row: float, minutes: int = 30, **fields: object) -> None:
    """With this usage: cpus, MiB, and two values of each GPU."""
    start = site.clock.at - timedelta(hours=2)
    values = {
        "name": "train",
        "state": JobState.COMPLETED,
        "attempt": 1,
        "resources": REQUEST,
        "started_at": start,
    }
    values["ended_at"] = end = start + timedelta(minutes=minutes)
    job = site.add_job(number, **(values | fields))
    attempt = {"job_id": number, "number": 1, "node": "n1", "devices": "[]", "state": job.state.value}
    times = {"created_at": start.timestamp(), "started_at": start.timestamp(), "ended_at": end.timestamp()}
    insert = schema.attempts.insert().values(**attempt, **times)
    site.context.store.write(lambda tx: tx.conn.execute(insert))
    for second in range(0, minutes * 60, 10) if row else ():
        site.context.samples.add(start.timestamp() + second, {f"job/{number}": row})


def new_job(site: Site, **fields: object) -> Job:
    return replace(a_job(99, site.clock.at), **({"name": "train", "resources": REQUEST} | fields))  # type: ignore[arg-type]


def texts(site: Site, job: Job | None = None, caller: Caller | None = None) -> Sequence[str]:
    found = find_usage_hints(site.context, caller or site.root, [job or new_job(site)])
    return [hint.text for hint in found]


def test_a_submission_is_told_what_the_last_jobs_like_it_used(site: Site) -> None:
    completed(site, 1, 8, 60 * GIB)  # the oldest of six does not count
    for number, gib in enumerate((1, 6, 2, 3, 4), 2):
        completed(site, number, 8, gib * GIB)
    assert texts(site) == [
        "Your last 5 jobs named train used at most 6 GiB of 64 GiB of memory. `--memory 8G` would be enough."
    ]


def test_every_unused_resource_is_a_hint(site: Site) -> None:
    wanted = replace(REQUEST, gpus=2)
    for number, loads in ((1, (90.0, 0.0)), (2, (0.0, 70.0))):  # which of its GPUs a job uses does not matter
        usage = (1.0, 60 * GIB, loads[0], 100.0, loads[1], 100.0)
        completed(site, number, *usage, resources=wanted, time_limit_seconds=86400)
    assert texts(site, new_job(site, resources=wanted, time_limit_seconds=86400)) == [
        "Your last 2 jobs named train used at most 1 of 2 GPUs. `--gpus 1` would be enough.",
        "Your last 2 jobs named train used at most 1 of 8 CPUs. `--cpus 2` would be enough.",
        "Your last 2 jobs named train took at most 30m of a time limit of 1d. `--time 45m` would be enough.",
    ]


def test_one_job_that_needed_the_resource_is_enough_for_silence(site: Site) -> None:
    completed(site, 1, 8, 3 * GIB)
    completed(site, 2, 8, 40 * GIB)
    assert texts(site) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "other"},
        {"user": "ada"},
        {"kind": "session"},
        {"state": JobState.FAILED},
        {"resources": replace(REQUEST, memory_mib=32 * 1024)},
        {"time_limit_seconds": 60},
        {"minutes": 1},
    ],
)
def test_only_similar_complete_runs_of_the_same_user_count(site: Site, fields: dict[str, object]) -> None:
    site.person("ada")
    completed(site, 1, 8, GIB)
    completed(site, 2, 8, GIB, **fields)  # type: ignore[arg-type]
    assert texts(site) == []  # one job is not enough


def test_jobs_of_others_are_not_revealed(site: Site) -> None:
    ada = site.person("ada")
    for number in (1, 2):
        completed(site, number, 8, GIB)
    assert texts(site, caller=ada) == []
    assert len(texts(site)) == 1


def test_arrays_sessions_and_several_jobs_get_no_hints(site: Site) -> None:
    for number in (1, 2):
        completed(site, number, 8, GIB)
    job = new_job(site)
    assert len(find_usage_hints(site.context, site.root, [job])) == 1
    assert find_usage_hints(site.context, site.root, [job, job]) == ()
    assert texts(site, replace(job, array_index=0)) == texts(site, replace(job, kind="session")) == []


def test_jobs_without_samples_give_no_hints(site: Site) -> None:
    for number in (1, 2, 3):
        completed(site, number)
    assert texts(site) == []


def test_the_jobs_of_a_user_are_read_once_in_a_while(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = PassingTime()
    site.context.recent_jobs = ReadCache(clock, seconds=30)  # type: ignore[misc]
    site.context.past_usage = ReadCache(clock, seconds=3600)  # type: ignore[misc]
    for number in (1, 2):
        completed(site, number, 8, GIB)
    assert len(texts(site)) == 1
    completed(site, 3, 8, 60 * GIB)
    with monkeypatch.context() as patched:
        patched.setattr(site.context.store, "read", lambda: pytest.fail("the database was read"))
        assert len(texts(site)) == 1
        assert texts(site, new_job(site, name="another")) == []
    clock.seconds = 31
    assert texts(site) == []
