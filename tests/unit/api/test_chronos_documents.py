"""Jobs as Chronos users have them, and what becomes of each; the cases are in tests/cases/chronos."""

import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.api.chronos.documents import DOCUMENT_DEFAULTS, document_to_schedule_request, schedule_to_document
from heliostat.errors import Invalid
from heliostat.models.schedules import Schedule, ScheduleState, is_chronos_job
from heliostat.services.schedules.schedule_requests import ScheduleRequest
from heliostat.web.job_form.request_to_body import request_to_body

CASES = sorted((Path(__file__).parents[2] / "cases" / "chronos").glob("*.json"))


def read(path: Path) -> dict[str, Any]:
    case: dict[str, Any] = json.loads(path.read_text())
    return case


def as_json(wish: ScheduleRequest) -> dict[str, Any]:
    names = ("timing", "zone", "overlap", "catch_up", "epsilon_seconds", "retries", "parents", "paused")
    shown: dict[str, Any] = json.loads(json.dumps({name: getattr(wish, name) for name in names}))
    return shown


def stored(wish: ScheduleRequest) -> Schedule:
    return Schedule(
        7,
        wish.name,
        "anna",
        "default",
        ScheduleState.PAUSED if wish.paused else ScheduleState.ACTIVE,
        wish.timing,
        wish.zone or "UTC",
        wish.request,
        datetime(2026, 1, 1, tzinfo=UTC),
        succeeded=3,
        failed=1,
        succeeded_at=datetime(2026, 3, 8, 16, 57, 17, 507_000, tzinfo=UTC),
        parents=(1, 2) if wish.parents else (),
        document=wish.document,
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_document_of_chronos_means_what_its_case_says(path: Path) -> None:
    case = read(path)
    if "refused" in case:
        with pytest.raises(Invalid) as error:
            document_to_schedule_request(case["document"], "anna")
        assert error.value.message.startswith(case["refused"])
        assert error.value.hint or error.value.fields
        return
    wish = document_to_schedule_request(case["document"], "anna")
    assert as_json(wish) == case["schedule"]
    assert request_to_body(wish.request) == case["job"]


@pytest.mark.parametrize(
    "path", [path for path in CASES if "refused" not in read(path)], ids=lambda path: path.stem
)
def test_a_document_comes_back_as_it_was_with_its_counts(path: Path) -> None:
    document = read(path)["document"]
    wish = document_to_schedule_request(document, "anna")
    shown = schedule_to_document(stored(wish), {1: "db_export-a", 2: "db_export-b"})
    counted = {"successCount", "errorCount", "lastSuccess", "lastError", "errorsSinceLastSuccess", "schedule"}
    assert {name: shown[name] for name in document if name not in counted} == {
        name: value for name, value in document.items() if name not in counted
    }
    assert (shown["successCount"], shown["errorCount"]) == (3, 1)
    assert (shown["lastSuccess"], shown["lastError"]) == ("2026-03-08T16:57:17.507Z", "")
    assert set(DOCUMENT_DEFAULTS) <= set(shown)
    again = document_to_schedule_request(shown, "anna")
    assert (again.request, again.parents, again.retries) == (wish.request, wish.parents, wish.retries)


def test_jobs_of_chronos_are_told_from_ours() -> None:
    assert is_chronos_job({"name": "a", "command": "true", "schedule": "R//PT1H"})
    assert is_chronos_job({"name": "a", "command": "true", "parents": ["b"]})
    assert not is_chronos_job({"name": "a", "command": "true"})
    assert not is_chronos_job({"name": "a", "command": ["true"], "after": "b"})
    assert not is_chronos_job("R//PT1H")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from([*DOCUMENT_DEFAULTS, "container", "parents", "schedule", "name"]), anything)
)
def test_whatever_is_sent_is_understood_or_refused_with_a_reason(fields: dict[str, Any]) -> None:
    document = {"name": "x", "command": "true", "schedule": "R//PT1H", **fields}
    try:
        wish = document_to_schedule_request(document, "anna")
    except Invalid as error:
        reason = error.message
    else:
        reason = wish.name
    assert reason


_IN_CONTAINERS = ["type", "network", "volumes", "forcePullImage", "parameters", "networkInfos", "other"]
_VOLUMES = st.dictionaries(st.sampled_from(["hostPath", "containerPath", "mode", "external"]), anything)
_FETCHES = st.dictionaries(st.sampled_from(["uri", "extract", "executable", "cache", "output_file"]), anything)


@given(
    st.dictionaries(st.sampled_from(_IN_CONTAINERS), anything),
    st.lists(_VOLUMES | anything, max_size=2),
    st.lists(_FETCHES | anything, max_size=2),
)
def test_whatever_is_in_containers_and_fetches_is_understood_or_refused_with_a_reason(
    container: dict[str, Any], volumes: list[Any], fetches: list[Any]
) -> None:
    document = {"name": "x", "command": "true", "schedule": "R//PT1H", "fetch": fetches}
    document["container"] = {"image": "a", "volumes": volumes, **container}
    with contextlib.suppress(Invalid):
        assert document_to_schedule_request(document, "anna").name == "x"
