"""The bodies of requests: whatever JSON comes, it is a job or a ValidationError."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from heliostat.api.schemas import BulkBody, CancelBody, DrainBody, JobBody, WaitBody

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
anything = st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
jobs = st.fixed_dictionaries({}, optional=dict.fromkeys(JobBody.model_fields, anything))


@settings(max_examples=150, deadline=None)
@given(jobs | anything)
def test_any_json_is_a_body_or_a_validation_error(body: object) -> None:
    for kind in (JobBody, BulkBody, CancelBody, WaitBody, DrainBody):
        with suppress(ValidationError):
            kind.model_validate(body)


@settings(max_examples=200, deadline=None)
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
