"""Jobs that somebody waits for: which are not over, and what there is to say of the others."""

from collections.abc import Callable, Iterable, Sequence

from starlette.responses import JSONResponse

from heliostat.api.views import Json
from heliostat.models import TERMINAL, Caller, Job, JobEvent, JobId
from heliostat.services.context import Context
from heliostat.services.rights import check_inspectable, inspectable_job
from heliostat.store import jobs as stored


class Waited:
    """`left` are those that are not over."""

    def __init__(
        self, context: Context, caller: Caller, ids: Sequence[JobId], view: Callable[[Job], Json]
    ) -> None:
        self._context, self._caller, self._ids, self._view = context, caller, ids, view
        self.left: set[JobId] = set()

    def look(self) -> None:
        """In the store. Raises when one does not exist, or is not to be looked at."""
        with self._context.store.read() as conn:
            standings = stored.get_standings(conn, self._ids)
        for job_id in self._ids:
            if job_id not in standings:
                inspectable_job(self._context, self._caller, job_id)
            check_inspectable(self._caller, standings[job_id])
        self.left = {job.id for job in standings.values() if job.state not in TERMINAL}

    def hear(self, events: Iterable[JobEvent]) -> None:
        self.left -= {event.job_id for event in events if event.state in TERMINAL}

    def answer(self) -> JSONResponse:
        """Takes a while when there are thousands."""
        over = [job_id for job_id in self._ids if job_id not in self.left]
        with self._context.store.read() as conn:
            jobs = stored.listed_jobs(conn, over)
        finished = [self._view(jobs[job_id]) for job_id in over]
        return JSONResponse({"finished": finished, "unfinished": sorted(self.left)})
