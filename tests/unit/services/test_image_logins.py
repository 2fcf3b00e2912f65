"""Registry logins of pushes, and their deletion."""

import os
from datetime import UTC, datetime

from heliostat.config import Home
from heliostat.controller.failure_details import add_image_push_failure
from heliostat.models import AttemptEnded, EndCause
from heliostat.services.environments.images import remove_stale_logins
from heliostat.store.database import Store
from support.fake_engines import FilesEngine
from support.new_database import create_database
from unit.services.site import a_job

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_login_without_a_push_is_deleted_after_an_hour(tmp_path):
    home = Home(tmp_path)
    create_database(home.database)
    store = Store(home.database)
    try:
        remove_stale_logins(store, home, NOW)  # where there is none
        for name, age in (("old", 7200), ("new", 60)):
            (home.registry_logins / name).mkdir(parents=True)
            (home.registry_logins / name / "login").write_text("{}")
            os.utime(home.registry_logins / name, (NOW.timestamp() - age,) * 2)
        remove_stale_logins(store, home, NOW)
        assert os.listdir(home.registry_logins) == ["new"]
    finally:
        store.close()


def test_the_end_of_a_failed_push_has_its_reason(tmp_path):
    (tmp_path / "jobs/1/work").mkdir(parents=True)
    (tmp_path / "jobs/1/work/why").write_text("Copying\nError: authentication required\n")
    failed = AttemptEnded("1.1", NOW, EndCause.EXITED, exit_code=1)
    assert "refused the login" in (
        add_image_push_failure(FilesEngine(tmp_path), a_job(1, NOW), failed).detail or ""
    )
    for other in (
        AttemptEnded("1.1", NOW, EndCause.EXITED, exit_code=0),
        AttemptEnded("1.1", NOW, EndCause.STOPPED),
    ):
        assert add_image_push_failure(FilesEngine(tmp_path), a_job(1, NOW), other) is other
