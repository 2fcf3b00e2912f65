"""The bodies of requests: whatever JSON comes, it is a job or a ValidationError."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from heliostat.api.job_schemas import BulkSubmitBody, CancelJobsBody, JobBody, WaitForJobsBody
from heliostat.api.nodes import DrainNodeBody
from support.hypothesis_examples import example_count

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
anything = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
jobs = st.fixed_dictionaries({}, optional=dict.fromkeys(JobBody.model_fields, anything))


@settings(max_examples=example_count(150), deadline=None)
@given(jobs | anything)
def test_any_json_is_a_body_or_a_validation_error(body: object) -> None:
    for kind in (JobBody, BulkSubmitBody, CancelJobsBody, WaitForJobsBody, DrainNodeBody):
        with suppress(ValidationError):
            kind.model_validate(body)


@settings(max_examples=example_count(200), deadline=None)
@given(
    st.fixed_dictionaries(
        {"command": st.text(min_size=1) | st.lists(st.text(), min_size=1)},
        optional={
            "name": st.text(),
            "workdir": st.text().map("/".__add__),
            "env": st.dictionaries(st.sampled_from(["A", "B", "PATH"]), st.text()),
            "memory": st.integers(0, 2**50),
            "grace_seconds": st.floats() | st.integers(),
        },
    )
)
def test_what_is_accepted_can_be_stored_and_started(body: dict[str, object]) -> None:
    try:
        request = JobBody.model_validate(body).to_request()
    except ValidationError:
        return
    texts = [*request.spec.command, *request.spec.env.values(), request.spec.workdir or "", request.name or ""]
    for text in texts:
        assert "\0" not in text
        assert json.loads(json.dumps(text).encode()) == text
        assert len(text.encode("utf-8")) < 128 * 1024
    assert request.name is None or (request.name.isprintable() and request.name.strip() == request.name != "")


def test_a_shell_line_goes_to_the_shell_and_words_go_as_they_are() -> None:
    assert JobBody(command="a | b").to_request().spec.command == ("/bin/sh", "-c", "a | b")
    assert JobBody(command=["a", "| b"]).to_request().spec.command == ("a", "| b")
    with_script = JobBody(script="#!/bin/sh\n", command=["x"]).to_request().spec
    assert (with_script.script, with_script.command) == ("#!/bin/sh\n", ("x",))


def test_the_two_names_of_the_class_are_not_sent_together() -> None:
    assert JobBody.model_validate({"command": "true", "class": "urgent"}).priority_class == "urgent"
    with pytest.raises(ValidationError, match="two names of the same field: send only one"):
        JobBody.model_validate({"command": "true", "class": "urgent", "priority_class": "urgent"})


def test_quantities_may_be_written_as_people_do() -> None:
    request = JobBody.model_validate(
        {"command": "x", "memory": "16G", "time_limit": "1d12h", "array": "0-9%3"}
    ).to_request()
    assert (request.memory_mib, request.time_limit_seconds) == (16384, 129600)
    assert request.array is not None
    assert (len(request.array.indexes), request.array.limit) == (10, 3)


@pytest.mark.parametrize("size", [131_070, 131_071])
def test_the_longest_argument_linux_takes_is_accepted_and_no_longer_one(size: int) -> None:
    JobBody(command=["true", "x" * size])
    with pytest.raises(ValidationError):
        JobBody(command=["true", "x" * (size + 2)])


@pytest.mark.parametrize("gpus", [0, 1, 8, 0.5, 0.25, 0.01, 2.0])
def test_gpus_are_a_whole_number_or_a_part_of_one(gpus: float) -> None:
    asked = JobBody.model_validate({"command": "x", "gpus": gpus}).to_request().gpus
    assert asked == gpus
    assert isinstance(asked, int) is (gpus == int(gpus))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gpus", 1.5),
        ("gpus", 0.125),
        ("gpus", -1),
        ("gpus", True),
        ("gpus", "1"),
        ("gpus", float("nan")),
        ("gpus", 10**400),
        ("tasks", 0),
        ("layout", "round"),
        ("labels", ["a b"]),
        ("labels", ["x"] * 21),
        ("preempt_signal", "KILL"),
        ("gpu_memory", "16G"),  # of no GPU
        ("exclusive", 1),
    ],
)
def test_what_makes_no_sense_is_refused(field: str, value: object) -> None:
    with pytest.raises(ValidationError):
        JobBody.model_validate({"command": "x", field: value})


def test_the_class_may_be_written_short_but_not_twice() -> None:
    assert JobBody.model_validate({"command": "x", "class": "urgent"}).to_request().priority_class == "urgent"
    with pytest.raises(ValidationError):
        JobBody.model_validate({"command": "x", "class": "urgent", "priority_class": "normal"})


def test_a_signal_may_be_written_either_way() -> None:
    assert JobBody.model_validate({"command": "x", "preempt_signal": "SIGUSR1"}).preempt_signal == "USR1"


def test_each_job_of_one_request_keeps_its_own_values_and_record() -> None:
    a, b = {"command": ["true"]}, {"command": ["true"], "env": {"A": "1"}}
    recorded = a | {"record": {"commit": "0" * 40, "diff": "changed"}}
    requests = BulkSubmitBody.model_validate({"jobs": [a, a, b, recorded]}).to_requests()
    assert [one.spec.env for one in requests] == [{}, {}, {"A": "1"}, {}]
    assert [one.code is None for one in requests] == [True, True, True, False]
