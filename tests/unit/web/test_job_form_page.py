"""What the page of the form shows."""

from datetime import UTC, datetime
from urllib.parse import parse_qs

from heliostat.api.validation import read_job
from heliostat.services.cluster.choices import GpuType, JobChoices
from heliostat.services.jobs.explanation import EarlierStartOption, Forecast, StartEstimate
from heliostat.web.job_form.fields import FORM_FIELDS
from heliostat.web.job_form.form_view import (
    FormErrors,
    FormFieldView,
    JobDraft,
    build_exports,
    build_form_view,
    build_preview,
)
from heliostat.web.job_form.text_conversion import body_to_texts

AT = datetime(2026, 1, 1, tzinfo=UTC)
LATER = Forecast(AT, AT, AT, 0.8)
OFFER = JobChoices((GpuType("A100", 8, 81920),), ("default", "vision"), "default", 3600, 86400)


def shown(draft: JobDraft) -> dict[str, FormFieldView]:
    view = build_form_view(draft, OFFER, None)
    return {
        one.field.name: one
        for one in (*view.main_fields, *(one for group in view.more_groups for one in group.fields))
    }


def test_every_field_is_shown_once() -> None:
    assert set(shown(JobDraft(body_to_texts({}), "k"))) == set(FORM_FIELDS)


def test_types_and_projects_are_those_there_are_and_the_one_that_was_typed() -> None:
    fields = shown(JobDraft(body_to_texts({"gpu_type": "H900", "project": "vision"}), "k"))
    assert [key for key, _ in fields["gpu_type"].options] == ["", "A100", "H900"]
    assert fields["gpu_type"].options[1][1] == "A100 · 8 of 80 GiB"
    assert [key for key, _ in fields["project"].options] == ["default", "vision"]
    assert fields["time_limit"].placeholder == "1h"


def test_the_rest_is_open_only_when_there_is_something_to_see() -> None:
    plain = body_to_texts({"command": "x", "gpus": 1})
    assert not build_form_view(JobDraft(plain, "k"), OFFER, None).is_more_open
    assert build_form_view(JobDraft(plain | {"cpus": "2"}, "k"), OFFER, None).is_more_open
    assert build_form_view(
        JobDraft(plain, "k", errors=FormErrors("no", fields={"cpus": "no"})), OFFER, None
    ).is_more_open


def test_a_suggestion_says_what_it_changes_in_the_texts_of_the_form() -> None:
    change: dict[str, object] = {"gpus": 2, "cpus": 16, "memory": 262144}
    options = (
        EarlierStartOption("2 GPUs", change, LATER, starts_now=False),
        EarlierStartOption("at most 4h", {"time_limit": 14400}, LATER, starts_now=True),
        EarlierStartOption("any GPU type", {"gpu_type": None}, LATER, starts_now=False),
        EarlierStartOption("not exclusive", {"exclusive": False}, LATER, starts_now=False),
    )
    explicit = build_preview(
        StartEstimate(LATER, options), read_job({"command": "x", "cpus": 32, "memory": "512G"})
    )
    assert parse_qs(explicit.suggestions[0].changes_query) == {"gpus": ["2"], "cpus": ["16"], "memory": ["256G"]}
    assert [one.changes_query for one in explicit.suggestions[1:]] == ["time_limit=4h", "gpu_type=", "exclusive="]
    assert [one.by_backfill for one in explicit.suggestions] == [False, True, False, False]


def test_who_left_cpus_and_memory_open_keeps_them_open() -> None:
    options = (EarlierStartOption("1 GPU", {"gpus": 1, "cpus": 8, "memory": 1024}, LATER, starts_now=False),)
    assert (
        build_preview(StartEstimate(LATER, options), read_job({"command": "x"})).suggestions[0].changes_query
        == "gpus=1"
    )
    options = (EarlierStartOption("half", {"cpus": 8, "memory": 1024}, LATER, starts_now=False),)
    assert (
        build_preview(StartEstimate(LATER, options), read_job({"command": "x"})).suggestions[0].changes_query
        == "cpus=8&memory=1G"
    )


def test_a_preview_says_now_later_or_that_nobody_knows() -> None:
    request = read_job({"command": "x", "held": True, "array": "0-3"})
    assert build_preview(StartEstimate(LATER, (), starts_now=True), request).state == "now"
    assert build_preview(StartEstimate(LATER, ()), request).state == "later"
    assert build_preview(StartEstimate(None, ()), request).state == "unknown"
    assert len(build_preview(StartEstimate(None, ()), request).notes) == 2
    paused = build_preview(StartEstimate(None, (), no_forecast_reason="after `helio resume`"), request)
    assert paused.no_forecast_reason == "after `helio resume`"


def test_what_is_no_job_yet_is_not_shown_elsewhere() -> None:
    assert build_exports(lambda: read_job({})) is None
    exports = build_exports(lambda: read_job({"command": "a b"}))
    assert exports is not None
    assert (exports.command, exports.yaml) == ("helio run -- 'a b'", "command: a b\n")
