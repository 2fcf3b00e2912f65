"""Efficiency reports: used resources compared with requested ones, and the change for the next run."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from heliostat.models import (
    DeviceStatistics,
    JobState,
    PlacementRequest,
    Resources,
    SeriesStatistics,
    UsageSummary,
)
from heliostat.models.quantities import parse_duration, parse_gpus, parse_memory
from heliostat.services.efficiency import EfficiencyReport, applicable_rules, assess_efficiency
from heliostat.services.efficiency_facts import IDLE_PERCENT, JobFacts, RequestLimits
from heliostat.services.efficiency_rules import RULES

TESTS = Path(__file__).parents[2]
CASES = yaml.safe_load((TESTS / "cases/efficiency.yaml").read_text())
DEFAULTS: dict[str, Any] = {
    "kind": "batch",
    "state": "completed",
    "gpus": 0,
    "cpus": 4,
    "memory": "32G",
    "tasks": 1,
    "exclusive": False,
    "run": 3600,
    "sampled": 3600,
    "limit": None,
    "attempts": 1,
    "cpu_mean": 3,
    "cpu_peak": 4,
    "memory_peak": "30G",
    "gpu_load": [],
    "gpu_peak": None,
    "gpu_memory": None,
    "out_of_memory": False,
    "splits_gpus": False,
}
LARGEST = RequestLimits(64, 256 * 1024, 90 * 86400)
GPU_MIB = 80 * 1024


def facts_of(given_facts: dict[str, Any]) -> JobFacts:
    assert given_facts.keys() <= DEFAULTS.keys()
    case = DEFAULTS | given_facts
    memory = None if case["memory_peak"] is None else float(parse_memory(case["memory_peak"]))
    share = None if case["gpu_memory"] is None else case["gpu_memory"] * GPU_MIB
    loads, peaks = case["gpu_load"], case["gpu_peak"] or case["gpu_load"]
    devices = tuple(
        DeviceStatistics(SeriesStatistics(mean, peak), SeriesStatistics(share, share))
        for mean, peak in zip(loads, peaks, strict=True)
    )
    cpus = SeriesStatistics(case["cpu_mean"], case["cpu_peak"])
    return JobFacts(
        Resources(case["cpus"], parse_memory(case["memory"]), case["gpus"]),
        UsageSummary(case["sampled"], cpus, SeriesStatistics(memory, memory), devices),
        case["run"],
        replace(LARGEST, splits_gpus=case["splits_gpus"]),
        JobState(case["state"]),
        case["kind"],
        PlacementRequest(case["tasks"], exclusive=case["exclusive"]),
        None if case["limit"] is None else parse_duration(case["limit"]),
        case["attempts"],
        case["out_of_memory"],
        tuple(GPU_MIB for _ in devices),
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_report_names_the_waste_and_the_exact_change(case: dict[str, Any]) -> None:
    report = assess_efficiency(facts_of(case["facts"]))
    assert [finding.rule for finding in report.findings] == case["rules"]
    assert report.text == case["says"]
    assert report.change == case.get("change", {})


def test_every_rule_has_cases_in_which_it_applies() -> None:
    assert {rule for case in CASES for rule in case["rules"]} == {rule.id for rule in RULES}


def test_every_rule_leads_to_a_section_of_the_guide() -> None:
    guide = (TESTS.parent / "docs/researchers.md").read_text()
    sections = {re.sub(r"\W+", "-", title.lower()) for title in re.findall(r"^#+ (.*)$", guide, re.MULTILINE)}
    assert {rule.guide for rule in RULES} <= sections


def test_a_change_is_written_as_options_and_as_a_command() -> None:
    report = EfficiencyReport(("used 1 of 2 GPUs",), change={"gpus": 1, "memory": "12G", "time_limit": "2h"})
    assert report.advice == "`--gpus 1 --memory 12G --time 2h` would have been enough"
    assert report.rerun_command(7) == "helio rerun 7 --set gpus=1 --set memory=12G --set time_limit=2h"


amounts = st.one_of(st.none(), st.floats(0, 1e6))


@st.composite
def statistics(draw: st.DrawFn, largest: float) -> SeriesStatistics:
    peak = draw(st.one_of(st.none(), st.floats(0, largest)))
    mean = draw(st.one_of(st.none(), st.floats(0, largest if peak is None else peak)))
    return SeriesStatistics(mean, peak)


@st.composite
def random_facts(draw: st.DrawFn) -> JobFacts:
    gpus = draw(st.sampled_from([0, 0.5, 1, 2, 8]))
    devices = [
        DeviceStatistics(draw(statistics(100)), draw(statistics(GPU_MIB)))
        for _ in range(1 if gpus == 0.5 else int(gpus))
    ]
    return JobFacts(
        Resources(draw(st.integers(1, 512)), draw(st.integers(16, 2**22)), gpus),
        UsageSummary(draw(st.floats(0, 1e7)), draw(statistics(512)), draw(statistics(2**22)), tuple(devices)),
        draw(st.floats(0, 1e7)),
        RequestLimits(draw(st.integers(1, 512)), draw(st.integers(16, 2**22)), draw(st.integers(60, 10**7)), True),
        draw(st.sampled_from(JobState)),
        draw(st.sampled_from(["batch", "session"])),
        PlacementRequest(draw(st.integers(1, 4)), exclusive=draw(st.booleans())),
        draw(st.one_of(st.none(), st.integers(1, 10**7))),
        draw(st.integers(1, 3)),
        draw(st.booleans()),
        tuple(GPU_MIB for _ in devices),
    )


@given(random_facts())
def test_a_report_always_has_a_sentence(facts: JobFacts) -> None:
    report = assess_efficiency(facts)
    assert report.text
    assert not report.text.endswith(".")
    assert "unknown" not in report.text
    assert report.wasteful <= report.judged
    assert bool(report.change) == bool(report.advice) == bool(report.rerun_command(1))


@given(random_facts())
def test_a_change_never_asks_for_less_than_was_used(facts: JobFacts) -> None:
    change, tasks = assess_efficiency(facts).change, facts.placement.tasks
    if "memory" in change:
        assert parse_memory(str(change["memory"])) * tasks >= (facts.memory_used or 0) or _is_at_limit(facts)
    if "cpus" in change:
        assert float(change["cpus"]) * tasks >= min(facts.used.cpus.peak or 0, facts.cpus)
    if "gpus" in change:
        used = sum((device.utilisation.peak or 0) >= IDLE_PERCENT for device in facts.used.devices)
        wanted = float(change["gpus"])
        part = max((facts.gpu_percent or 0) / 100, facts.gpu_memory_fraction or 0)
        assert wanted >= part if 0 < wanted < 1 else wanted >= used
    if "time_limit" in change:
        assert parse_duration(str(change["time_limit"])) >= min(facts.run_seconds, facts.time_limit_seconds or 0)


def _is_at_limit(facts: JobFacts) -> bool:
    return facts.memory_used is not None and facts.memory_used > facts.memory_mib


@given(random_facts())
def test_a_change_can_be_submitted_and_stays_within_the_limits(facts: JobFacts) -> None:
    change, requested, limits = assess_efficiency(facts).change, facts.requested, facts.limits
    if "memory" in change:
        assert 16 <= parse_memory(str(change["memory"])) <= max(limits.memory_mib, requested.memory_mib)
    if "cpus" in change:
        assert 1 <= int(change["cpus"]) <= max(limits.cpus, requested.cpus)
    if "gpus" in change:
        assert parse_gpus(float(change["gpus"])) <= requested.gpus
    if "time_limit" in change:
        largest = max(limits.time_limit_seconds, facts.time_limit_seconds or 0)
        assert 60 <= parse_duration(str(change["time_limit"])) <= largest


@given(random_facts(), amounts, amounts)
def test_using_more_memory_never_adds_waste(facts: JobFacts, less: float | None, more: float | None) -> None:
    amounts = sorted((less or 0.0, more or 0.0))
    wastes = [
        "unused-memory" in {rule.id for rule in applicable_rules(_with_memory(facts, amount))}
        for amount in amounts
    ]
    assert wastes[0] >= wastes[1]


def _with_memory(facts: JobFacts, mib: float) -> JobFacts:
    return replace(facts, used=replace(facts.used, memory_mib=SeriesStatistics(mib, mib)))
