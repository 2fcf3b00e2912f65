"""Requests kept as JSON are the same when they are read, also by a later version that knows more fields."""

import json
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta

import pytest

from heliostat.api.validation import read_job
from heliostat.models import JobRequest, JobSpec
from heliostat.models.environments import EnvironmentSpec
from heliostat.store.dataclass_json import dataclass_to_text, text_to_dataclass

BODIES = [
    {"command": "python train.py"},
    {"command": ["a b", "\u202e", "\0x".replace("\0", "")], "env": {"A": "1\n2"}, "labels": ["disk=ssd", "fast"]},
    {"script": "#!/bin/sh\necho hi\n", "array": "0-9%2", "gpus": 0.5, "gpu_memory": "40G"},
    {"command": "x", "after": [1, "array:2"], "after_any": "3", "begin": "+2h", "tasks": 2, "layout": "spread"},
    {
        "command": "x",
        "begin": "2030-01-01T00:00:00Z",
        "image": "python:3.11",
        "mounts": ["/a:/b:ro"],
        "network": "none",
    },
    {"command": "x", "grace_seconds": 2.5, "priority": -3, "class": "urgent", "preempt_signal": "USR1"},
]


@pytest.mark.parametrize("body", BODIES)
def test_a_request_is_the_same_again(body: dict[str, object]) -> None:
    request = read_job(body)
    assert text_to_dataclass(JobRequest, dataclass_to_text(request)) == request


@pytest.mark.parametrize("begin", [timedelta(hours=2), datetime(2030, 1, 1, tzinfo=UTC), None])
def test_times_and_intervals_are_told_apart(begin: datetime | timedelta | None) -> None:
    request = JobRequest(JobSpec(("true",)), begin=begin)
    assert text_to_dataclass(JobRequest, dataclass_to_text(request)).begin == begin


@pytest.mark.parametrize(
    "asked", [EnvironmentSpec("requirements", (("a.txt", "numpy"),), "3.11"), "0123abcd", None]
)
def test_software_and_the_digest_of_one_are_told_apart(asked: EnvironmentSpec | str | None) -> None:
    request = JobRequest(JobSpec(("true",)), environment=asked)
    assert text_to_dataclass(JobRequest, dataclass_to_text(request)).environment == asked


def test_what_an_older_version_did_not_know_has_its_default() -> None:
    made = text_to_dataclass(JobRequest, json.dumps({"spec": {"command": ["true"]}, "gone_since": 1}))
    assert made == JobRequest(JobSpec(("true",)))


def test_every_field_but_the_spec_has_a_default_so_that_old_ones_can_be_read() -> None:
    bare = [one.name for one in fields(JobRequest) if one.default is MISSING and one.default_factory is MISSING]
    assert bare == ["spec"]
