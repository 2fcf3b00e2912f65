"""The log of a job's page, of a job that goes on while the page is made."""

from dataclasses import replace
from typing import cast

import pytest

from heliostat.services.logs.windows import LogWindow
from heliostat.web.job_page import log_view
from heliostat.web.request_context import AuthenticatedRequest
from unit.scheduling.builders import a_running_job


class _Visit:
    context = caller = None


def test_an_attempt_that_began_while_the_page_was_made_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = a_running_job(3, "n1")
    now = replace(before, attempt=2)
    monkeypatch.setattr(log_view, "read_log_window", lambda *_: LogWindow(now, 2, (), 0, 0, 0, {}))
    view = log_view.build_log_view(cast(AuthenticatedRequest, _Visit()), before, log_view.LogQuery())
    assert (view.attempt, view.is_following) == (2, True)
