"""The log of a job's page, of a job that goes on while the page is made."""

from dataclasses import replace
from typing import cast

import pytest

from heliostat.services.logs.windows import LogWindow
from heliostat.web.job import logs
from heliostat.web.visits import Visit
from unit.scheduling.made_up import a_running_job


class _Visit:
    context = caller = None


def test_an_attempt_that_began_while_the_page_was_made_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = a_running_job(3, "n1")
    now = replace(before, attempt=2)
    monkeypatch.setattr(logs, "log_window", lambda *_: LogWindow(now, 2, (), 0, 0, 0, {}))
    view = logs.log_view(cast(Visit, _Visit()), before, logs.LogQuery())
    assert (view.attempt, view.follows) == (2, True)
