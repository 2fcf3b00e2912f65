"""Efficiency reports: used resources compared with requested ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.models import DeviceStatistics, SeriesStatistics, UsageSummary
from heliostat.services.efficiency import MIN_RUN_SECONDS, RequestedResources, assess_efficiency

GIB = 1024
HOUR = 3600.0


def used(
    cpus: float | None = 4.0, memory_gib: float | None = 30.0, loads: tuple[float | None, ...] = ()
) -> UsageSummary:
    devices = tuple(DeviceStatistics(SeriesStatistics(load, load, load)) for load in loads)
    memory = None if memory_gib is None else memory_gib * GIB
    return UsageSummary(
        HOUR, SeriesStatistics(cpus, cpus, cpus), SeriesStatistics(memory, memory, memory), devices
    )


def asked(cpus: int = 4, memory_gib: int = 32, gpus: float = 0) -> RequestedResources:
    return RequestedResources(cpus, memory_gib * GIB, gpus)


@pytest.mark.parametrize(
    ("asked_for", "was_used", "words"),
    [
        (asked(gpus=4), used(loads=(90, 0, 0, 1)), "used 1 of 4 GPUs"),
        (asked(gpus=4), used(loads=(0, 0, 0, 1)), "used none of its 4 GPUs"),
        (asked(gpus=1), used(loads=(0,)), "did not use its GPU"),
        (asked(gpus=1), used(loads=(12,)), "its GPU was busy only 12% of the time"),
        (asked(gpus=2), used(loads=(20, 28)), "its 2 GPUs were busy only 24% of the time"),
        (asked(memory_gib=64), used(memory_gib=3), "requested 64 GiB of memory, used 3 GiB"),
        (asked(memory_gib=64), used(memory_gib=0.25), "requested 64 GiB of memory, used 256 MiB"),
        (asked(cpus=16), used(cpus=1.24), "requested 16 CPUs, used 1.2"),
        (
            asked(cpus=16, memory_gib=64, gpus=2),
            used(1, 3, (80, 0)),
            "used 1 of 2 GPUs; requested 64 GiB of memory, used 3 GiB; requested 16 CPUs, used 1",
        ),
    ],
)
def test_wasted_resources_are_reported(asked_for: RequestedResources, was_used: UsageSummary, words: str) -> None:
    found = assess_efficiency(asked_for, was_used, HOUR)
    assert found.text == words
    assert found.wasteful


@pytest.mark.parametrize(
    ("asked_for", "was_used", "words"),
    [
        (
            asked(gpus=2),
            used(3.5, 30, (80, 90)),
            "used its 2 GPUs 85% of the time, 3.5 of 4 CPUs, 30 GiB of 32 GiB of memory",
        ),
        (asked(gpus=1), used(None, None, (80,)), "used its GPU 80% of the time"),
        (asked(cpus=1, memory_gib=4), used(0.1, 0.2), "used 0.1 of 1 CPU, 205 MiB of 4 GiB of memory"),
        (
            asked(gpus=0.5),
            used(loads=(12,)),
            "used its GPU 12% of the time, 4 of 4 CPUs, 30 GiB of 32 GiB of memory",
        ),
        (asked(gpus=2), used(None, None, (None, None)), "no usage data"),
    ],
)
def test_well_used_or_small_amounts_are_not_reported_as_waste(
    asked_for: RequestedResources, was_used: UsageSummary, words: str
) -> None:
    found = assess_efficiency(asked_for, was_used, HOUR)
    assert found.text == words
    assert not found.wasteful


def test_a_short_job_is_not_assessed() -> None:
    assert assess_efficiency(asked(gpus=4), used(loads=(0,) * 4), MIN_RUN_SECONDS - 1).text.startswith(
        "its run time is below 120 s"
    )
    assert assess_efficiency(asked(), UsageSummary(), 0).text == "it has not run yet"
    assert assess_efficiency(asked(), UsageSummary(), HOUR).text == "no usage data"


FIGURE = st.one_of(st.none(), st.floats(0, 1e6))


@given(
    st.builds(RequestedResources, st.integers(1, 512), st.integers(1, 2**22), st.integers(0, 8).map(float)),
    st.builds(used, FIGURE, FIGURE, st.lists(st.one_of(st.none(), st.floats(0, 100)), max_size=8).map(tuple)),
    st.floats(0, 1e7),
)
def test_a_report_always_has_a_sentence(
    asked_for: RequestedResources, was_used: UsageSummary, seconds: float
) -> None:
    found = assess_efficiency(asked_for, was_used, seconds)
    assert found.text
    assert not found.text.endswith(".")
    assert found.gpus_used is None or 0 <= found.gpus_used <= len(was_used.devices)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_using_more_memory_never_adds_a_complaint(less: float, more: float) -> None:
    less, more = sorted((less, more))
    blames = [
        assess_efficiency(asked(memory_gib=64), used(memory_gib=gib / GIB), HOUR).wasteful for gib in (less, more)
    ]
    assert blames[0] >= blames[1]
