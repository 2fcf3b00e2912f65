"""Jobs that somebody waits for: which are not over, and what there is to say of the others."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from pydantic_core import to_json

from heliostat.api.views import Json
from heliostat.models import TERMINAL, Caller, Job, JobEvent, JobId
from heliostat.services.context import Context
from heliostat.services.rights import check_inspectable, inspectable_job
from heliostat.store import jobs as stored

_MANY = 100
_to_json = partial(to_json, inf_nan_mode="null")


class Waited:
    """Those that are over do not change any more, and are read while others run: the answer is not far then."""

    def __init__(
        self, context: Context, caller: Caller, ids: Sequence[JobId], view: Callable[[Job], Json]
    ) -> None:
        self._context, self._caller, self._ids, self._view = context, caller, ids, view
        self._shown: dict[JobId, bytes] = {}  # as JSON
        self._to_show: set[JobId] = set(ids)
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

    @property
    def has_many_to_show(self) -> bool:
        return len(self._to_show) - len(self.left) >= _MANY

    def show(self) -> None:
        over = self._to_show - self.left
        with self._context.store.read() as conn:
            jobs = stored.listed_jobs(conn, over).values()
        self._shown |= {job.id: _to_json(self._view(job)) for job in jobs}
        self._to_show -= over

    def answer(self) -> bytes:
        self.show()
        finished = b",".join([self._shown[job_id] for job_id in self._ids if job_id in self._shown])
        return b'{"finished":[%b],"unfinished":%b}' % (finished, _to_json(sorted(self.left)))
