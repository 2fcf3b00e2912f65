"""Who will start much later than was foretold: noted once as an event, for those who want to be told of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from heliostat.models import Job, JobState
from heliostat.models.notices import LATE, Notice
from heliostat.scheduling.forecast import Forecast
from heliostat.store import jobs as stored_jobs
from heliostat.store import moves, notices
from heliostat.store.database import Store, Transaction


@dataclass(frozen=True, slots=True)
class Lateness:
    store: Store
    forecast_of: Callable[[Job], Forecast | None]
    late_seconds: float
    now: Callable[[], datetime]

    def note(self, wanted_by: Sequence[Notice]) -> None:
        """Only of jobs of which somebody wants to know it."""
        those = [one for one in wanted_by if LATE in one.occasions]
        users = {one.user for one in those if one.project is None}
        projects = {one.project for one in those if one.project is not None}
        with self.store.read() as conn:
            promised = dict(notices.foretold_and_waiting(conn, users, projects))
            jobs = stored_jobs.get_jobs(conn, list(promised)) if promised else {}
        late: list[tuple[Job, str]] = []
        for job in jobs.values():
            if not any(_wants(notice, job) for notice in wanted_by):
                continue
            forecast, latest_at = self.forecast_of(job), promised[job.id]
            if forecast and forecast.likely_at > latest_at + timedelta(seconds=self.late_seconds):
                words = f"was to start by {_clock(latest_at)}, now likely at {_clock(forecast.likely_at)}"
                late.append((job, words))
        if late:
            self.store.write(lambda tx: self._write(tx, late))

    def _write(self, tx: Transaction, late: Sequence[tuple[Job, str]]) -> None:
        found = stored_jobs.get_jobs(tx.conn, [job.id for job, _ in late])
        for job, words in late:
            if found[job.id].state is JobState.PENDING:
                moves.note_job(tx, found[job.id], LATE, words, self.now())


def _wants(notice: Notice, job: Job) -> bool:
    if notice.project is not None:
        return notice.project == job.project and LATE in notice.occasions
    return notice.user == job.user and LATE in (*notice.occasions, *job.notify)


def _clock(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
