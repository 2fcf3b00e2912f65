"""Logins that wait for a push, and what is left of them."""

import os
from datetime import UTC, datetime

from heliostat.config import Home
from heliostat.controller.leftovers import settle_push
from heliostat.models import Cause, Ended
from heliostat.services.environments.images import sweep_logins
from heliostat.store.database import Store
from support.engines import FilesEngine
from support.new_database import new_database
from unit.services.site import a_job

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_login_nobody_waits_for_goes_after_an_hour(tmp_path):
    home = Home(tmp_path)
    new_database(home.database)
    store = Store(home.database)
    try:
        sweep_logins(store, home, NOW)  # where there is none
        for name, age in (("old", 7200), ("new", 60)):
            (home.logins / name).mkdir(parents=True)
            (home.logins / name / "login").write_text("{}")
            os.utime(home.logins / name, (NOW.timestamp() - age,) * 2)
        sweep_logins(store, home, NOW)
        assert os.listdir(home.logins) == ["new"]
    finally:
        store.close()


def test_the_end_of_a_push_says_why_it_failed(tmp_path):
    (tmp_path / "jobs/1/work").mkdir(parents=True)
    (tmp_path / "jobs/1/work/why").write_text("Copying\nError: authentication required\n")
    failed = Ended("1.1", NOW, Cause.EXITED, exit_code=1)
    assert "refuses this login" in (settle_push(FilesEngine(tmp_path), a_job(1, NOW), failed).detail or "")
    for other in (Ended("1.1", NOW, Cause.EXITED, exit_code=0), Ended("1.1", NOW, Cause.STOPPED)):
        assert settle_push(FilesEngine(tmp_path), a_job(1, NOW), other) is other
