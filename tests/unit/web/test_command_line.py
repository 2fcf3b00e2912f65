"""The line that is shown, read by a real shell and the real command, asks for the same job."""

import contextlib
import io
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from heliostat.api.validation import read_job
from heliostat.cli.command_tree import build_root_command
from heliostat.client import Client
from heliostat.models import JobRequest
from heliostat.web.job_form.command_line import build_command_line
from heliostat.web.job_form.request_to_body import request_to_body
from support.hypothesis_examples import example_count
from unit.web.job_requests import requests

# Stands in for helio in the shell: what it was given, word by word, and what came in.
_ECHO = 'helio() { printf \'%s\\0\' "$#" "$@"; cat; }\n'


@pytest.fixture(autouse=True, scope="module")
def _without_records() -> Iterator[None]:
    """These tests may run in a git repository or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HELIOSTAT_RECORD", "0")
        yield


@pytest.fixture(params=["sh", "bash"])
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@settings(max_examples=example_count(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(requests)
def test_the_shown_line_asks_for_the_same_job(shell: str, request: JobRequest) -> None:
    words, given = _read_by(shell, build_command_line(request_to_body(request)))
    (body,) = _asked_for(words, given)
    assert read_job(body) == request


def _read_by(shell: str, line: str) -> tuple[list[str], str]:
    ran = subprocess.run([shell, "-c", _ECHO + line], capture_output=True, stdin=subprocess.DEVNULL, check=True)
    count, _, rest = ran.stdout.decode().partition("\0")
    *words, given = rest.split("\0", int(count))
    return words, given


def _asked_for(words: list[str], given: str) -> list[dict[str, Any]]:
    """The bodies that this command line sends."""
    sent: list[dict[str, Any]] = []

    def call(method: str, path: str, body: dict[str, Any], **_: Any) -> Any:
        sent.extend(body.get("jobs", [body]))
        raise _Enough

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(_Enough):
        client = Client("http://127.0.0.1:1", token="t")  # another machine than the server's
        patch.setattr(client._transport, "call", call)
        patch.setattr("heliostat.cli.run.connect", lambda: client)
        patch.setattr("heliostat.cli.submit.connect", lambda: client)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode()), "utf-8"))
        build_root_command().main(words, standalone_mode=False)
    return sent


class _Enough(Exception):
    """It was sent."""
