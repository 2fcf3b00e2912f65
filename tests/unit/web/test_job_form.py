"""A job in all its forms: whatever way it goes, it comes back as the same request."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heliostat.api.job_schemas import JobBody
from heliostat.api.validation import read_job
from heliostat.errors import Invalid
from heliostat.models import ArrayRange, Job, JobRequest, JobSpec, JobState, PlacementRequest, Resources
from heliostat.services.context import utc_now
from heliostat.web.job_form.command_line import build_command_line
from heliostat.web.job_form.fields import FIELD_GROUPS, FORM_FIELDS, FORM_ONLY_FIELDS
from heliostat.web.job_form.job_file import body_to_json, body_to_yaml, parse_job_file
from heliostat.web.job_form.request_to_body import (
    array_text,
    duration_text,
    job_to_request,
    memory_text,
    request_to_body,
)
from heliostat.web.job_form.text_conversion import body_to_texts, texts_to_body
from support.hypothesis_examples import example_count
from unit.web.job_requests import bodies, requests

CASES = Path(__file__).parents[2] / "cases" / "command_line"
often = settings(
    max_examples=example_count(200), deadline=None, suppress_health_check=[HealthCheck.filter_too_much]
)


def test_the_form_has_every_field_of_the_api_and_no_other() -> None:
    nobody_types = {"record"}  # clients say with which code a job is submitted
    assert set(FORM_FIELDS) - FORM_ONLY_FIELDS == set(JobBody.model_fields) - nobody_types
    assert len(FORM_FIELDS) == sum(len(group.fields) for group in FIELD_GROUPS)


@pytest.mark.parametrize("number", ["0x" + "f" * 60_000, "0b" + "1" * 60_000, "9" * 60_000])
def test_a_number_without_end_stays_text(number: str) -> None:
    assert body_to_texts(parse_job_file(f"gpus: {number}"))["gpus"] == number


@often
@given(requests)
def test_a_request_is_the_same_after_a_way_through_the_form(request: JobRequest) -> None:
    body, problems = texts_to_body(body_to_texts(request_to_body(request)))
    assert not problems
    assert read_job(body) == request


@often
@given(requests)
def test_a_request_is_the_same_after_a_way_through_yaml_and_json(request: JobRequest) -> None:
    body = request_to_body(request)
    assert read_job(body) == request
    for text in (body_to_yaml(body), body_to_json(body)):
        assert parse_job_file(text) == body


@often
@given(bodies)
def test_whatever_was_asked_for_fills_the_form(body: dict[str, object]) -> None:
    assert set(body_to_texts(body)) == set(FORM_FIELDS)


@often
@given(st.dictionaries(st.sampled_from(list(FORM_FIELDS)), st.text()))
def test_whatever_is_typed_is_a_job_or_a_word_about_a_field(texts: dict[str, str]) -> None:
    body, problems = texts_to_body(texts)
    assert set(body) | set(problems) <= set(FORM_FIELDS)
    with suppress(Invalid):
        read_job(body)


@often
@given(st.text() | st.recursive(st.none() | st.booleans() | st.text(), lambda i: st.lists(i) | st.dictionaries(st.text(), i)).map(json.dumps))  # fmt: skip  # noqa: E501
def test_whatever_is_pasted_is_a_body_or_refused(text: str) -> None:
    with suppress(Invalid):
        assert set(body_to_texts(parse_job_file(text))) == set(FORM_FIELDS)


@pytest.mark.parametrize("text", ["1", "1.5", "abc", "1_000", "٣", "9" * 5000, "1e9", "-1", "nan", "inf"])
def test_numbers_are_refused_by_the_api_in_its_own_words(text: str) -> None:
    body, problems = texts_to_body({"command": "true", "cpus": text})
    assert not problems
    if text != "1":
        with pytest.raises(Invalid) as refused:
            read_job(body)
        assert set(refused.value.fields) == {"cpus"}


@pytest.mark.parametrize(
    ("texts", "field", "words"),
    [
        ({"command": "a 'b", "command_kind": "words"}, "command", "unclosed quotation mark"),
        ({"command": "true", "env": "FOO"}, "env", "has no ="),
        ({"command": "true", "env": "A=1\nA=2"}, "env", "twice"),
        ({"command": "true", "grace_seconds": "soon"}, "grace_seconds", "not a duration"),
    ],
)
def test_what_only_the_form_can_get_wrong_is_said_beside_its_field(
    texts: dict[str, str], field: str, words: str
) -> None:
    _, problems = texts_to_body(texts)
    assert words in problems[field]


def test_variables_are_read_as_they_stand_there_and_in_quotation_marks_as_json() -> None:
    body, _ = texts_to_body({"env": 'A= b \n\nB="x\\ny"\nC="\nD="1" 2\nE=a=b'})
    assert body["env"] == {"A": " b ", "B": "x\ny", "C": '"', "D": '"1" 2', "E": "a=b"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the file is empty"),
        ("[]", "no job"),
        ("just words", "no job"),
        ("a: [", "neither YAML nor JSON"),
        ("- command: a\n- command: b", "2 jobs"),
        ("!!python/object/apply:os.system [id]", "neither YAML nor JSON"),
        ("a: &x [1]\nb: *x", "refers to parts of itself"),
        ("[" * 5000, "nested too deeply"),
        ("x" * 200_000, "longer"),
    ],
)
def test_a_file_without_one_job_is_refused_kindly(text: str, why: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_job_file(text)
    assert why in refused.value.fields["import"]
    assert refused.value.hint


def test_a_file_is_read_as_helio_submit_reads_it() -> None:
    text = "jobs:\n- {command: [echo, 3], env: {A: 1, B: yes}, array: 5, class: urgent, time_limit: 1:30}"
    expected = {"command": ["echo", "3"], "env": {"A": "1", "B": "true"}, "array": "5"}
    assert parse_job_file(text) == {**expected, "priority_class": "urgent", "time_limit": "1:30"}


def test_a_script_stays_readable_in_yaml() -> None:
    assert body_to_yaml({"script": "#!/bin/sh\necho hi\n"}) == "script: |\n  #!/bin/sh\n  echo hi\n"


@pytest.mark.parametrize(
    "text", ["0\x85", "a\u2028b", "\ufeff", "\x07", "a\n \n", " a\n", "- x", "yes", "1:30", "~", "#"]
)
def test_what_yaml_would_take_for_something_else_stays_text(text: str) -> None:
    assert parse_job_file(body_to_yaml({"command": text})) == {"command": text}


def test_a_job_is_asked_for_again_with_all_it_had() -> None:
    job = Job(
        id=12, kind="batch", name="x", state=JobState.FAILED, user="anna", unix_user="anna", project="vision",
        resources=Resources(8, 2048, 2, "A100", 40960), spec=JobSpec(("python", "t.py"), env={"A": "1"}),
        submitted_at=utc_now(), time_limit_seconds=5400, array_id=1, array_index=7, array_limit=2,
        placement=PlacementRequest(2, labels=("fast",)), preemptible=True,
    )  # fmt: skip
    assert request_to_body(job_to_request(job)) == {
        "command": ["python", "t.py"], "gpus": 2, "gpu_type": "A100", "time_limit": "1h30m", "name": "x",
        "project": "vision", "cpus": 8, "memory": "2G", "gpu_memory": "40G", "tasks": 2, "array": "7",
        "labels": ["fast"], "preemptible": True, "env": {"A": "1"},
    }  # fmt: skip


def test_quantities_read_as_people_write_them() -> None:
    assert [memory_text(mib) for mib in (512, 1024, 1536, 2**20)] == ["512M", "1G", "1536M", "1T"]
    assert [duration_text(s) for s in (90, 3600, 129600, 2.5)] == ["1m30s", "1h", "1d12h", "2.5"]
    assert array_text(ArrayRange((0, 1, 2, 5, 9, 8), 4)) == "0-2,5,9,8%4"


@pytest.mark.parametrize("case", sorted(CASES.glob("*.json")), ids=lambda case: case.stem)
def test_the_command_line_is_quoted_exactly(case: Path) -> None:
    body = json.loads(case.read_text())
    assert build_command_line(body) == case.with_suffix(".txt").read_text().removesuffix("\n")
