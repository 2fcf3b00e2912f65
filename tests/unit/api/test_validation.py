"""What is wrong with a body, in words, and what to do about it."""

import re

import pytest
from pydantic import ValidationError

from heliostat.api.job_schemas import BulkSubmitBody, JobBody
from heliostat.api.validation import read_job
from heliostat.api.validation_errors import validation_error
from heliostat.errors import Invalid


@pytest.mark.parametrize("body", [{"command": ["true"], "LD_PRELOAD": "%"}, {"command": 5}, {"gpus": -1}])
def test_whatever_is_wrong_with_a_job_there_is_a_hint(body: dict[str, object]) -> None:
    with pytest.raises(Invalid) as caught:
        read_job(body)
    assert caught.value.hint
    assert caught.value.fields


@pytest.mark.parametrize("field", sorted(JobBody.model_fields))
def test_what_is_wrong_with_a_field_is_said_in_plain_words(field: str) -> None:
    values = (
        None,
        True,
        -1,
        1.5,
        10**30,
        "",
        "\0",
        "x" * 200_000,
        [],
        [None],
        [[]],
        {},
        {"a": None},
        {"conda": 1},
    )
    said = []
    for value in values:
        try:
            read_job({"command": ["true"], field: value})
        except Invalid as error:
            said.append(error.message)
    assert not [
        message for message in said if re.search(r"Input|should|valid (integer|string)|pydantic|Body", message)
    ]
    assert not [message for message in said if "is not valid" in message]


def test_a_value_of_several_types_is_one_problem() -> None:
    with pytest.raises(Invalid) as caught:
        read_job({"command": 5, "environment": {"python": "3.11", "fruit": 1}})
    assert caught.value.message.splitlines() == [
        "command: must be text or a list.",
        "environment.fruit: there is no such field.",
    ]


def test_every_problem_of_every_job_is_named_with_its_job() -> None:
    jobs = [{"name": "prep", "command": "x", "gpus": "two", "memroy": 1}, {"command": "x"}, {"cpus": 0}]
    with pytest.raises(ValidationError) as caught:
        BulkSubmitBody.model_validate({"jobs": jobs})
    error = validation_error(caught.value.errors(), None, {"jobs": jobs})
    assert error.message.splitlines() == [
        "job prep: gpus: must be a number.",
        "job prep: memroy: there is no such field (did you mean memory?).",
        "job 3 of 3: cpus: must be at least 1.",
    ]
    assert set(error.fields) == {"jobs.0.gpus", "jobs.0.memroy", "jobs.2.cpus"}
