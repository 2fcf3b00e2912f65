from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from heliostat.loops.notifier import LateJobDetector
from heliostat.models import Job, JobEvent
from heliostat.models.forecasts import ForecastRange, PastForecast
from heliostat.models.notifications import Notification, NotificationChannel
from heliostat.scheduling.forecast import Forecast
from heliostat.store import forecasts
from heliostat.store import notifications as stored
from unit.services.site import Site, new_site

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with new_site(tmp_path) as site:
        yield site


def a_notification(*triggers: str, project: str | None = None) -> Notification:
    return Notification(1, "root", project, NotificationChannel.EMAIL, "root@example.org", triggers, "s", NOON, 0)


def foretold(site: Site, number: int, **fields: object) -> Job:
    """To start between one and two o'clock."""
    job = site.add_job(number, **fields)
    shown = ForecastRange(*((NOON + hours * HOUR).timestamp() for hours in (1, 1, 2)))
    first = PastForecast(NOON.timestamp(), shown, shown)
    site.context.store.write(lambda tx: forecasts.add_forecasts(tx, "local", {number: first}))
    return job


def look(site: Site, starts_at: datetime, *notifications: Notification) -> None:
    def forecast_of(job: Job) -> Forecast:
        return Forecast(starts_at, starts_at, starts_at, None)

    LateJobDetector(site.context.store, forecast_of, 3600, lambda: NOON).record_late_jobs(notifications)


def told(site: Site) -> list[JobEvent]:
    with site.context.store.read() as conn:
        return [one.event for one in stored.list_notifiable_events(conn, 0, 100) if one.event.kind == "late"]


def test_who_will_start_much_later_than_foretold_is_noted_once(site: Site) -> None:
    foretold(site, 1)
    look(site, NOON + 4 * HOUR, a_notification("late"))
    look(site, NOON + 9 * HOUR, a_notification("late"))
    (event,) = told(site)
    assert event.job_id == 1
    assert event.detail == "first forecast: by 2026-03-01 14:00 UTC; now: 2026-03-01 16:00 UTC"


def test_a_little_later_is_not_late(site: Site) -> None:
    foretold(site, 1)
    look(site, NOON + 3 * HOUR, a_notification("late"))
    assert told(site) == []


def test_what_nobody_wants_to_know_is_not_noted(site: Site) -> None:
    foretold(site, 1)
    look(site, NOON + 9 * HOUR, a_notification("ended"), a_notification("late", project="other"))
    assert told(site) == []


def test_a_job_may_ask_for_it_itself(site: Site) -> None:
    foretold(site, 1, notify=("late",))
    foretold(site, 2)
    look(site, NOON + 9 * HOUR, a_notification())
    assert [one.job_id for one in told(site)] == [1]


def test_a_project_may_be_told_of_all_its_jobs(site: Site) -> None:
    foretold(site, 1)
    look(site, NOON + 9 * HOUR, a_notification("late", project="default"))
    assert [one.job_id for one in told(site)] == [1]
