"""The test of many jobs in one pass, compared with the search for a placement of each job."""

from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from heliostat.scheduling.availability import book_capacity_for_job, build_availability, expected_ends
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.placement import JobPlacement
from heliostat.scheduling.planned_capacity import Capacity
from heliostat.scheduling.reservations import book_capacity_for_window, list_reservation_windows
from heliostat.scheduling.snapshot import Snapshot
from heliostat.scheduling.startable_jobs import find_startable
from unit.scheduling.builders import NOW
from unit.scheduling.random_cases import ALL, MANY, Case, cases

NOW_SECONDS = NOW.timestamp()
MANY_WINDOWS = replace(ALL, reservations=6, running=5, pending=20)


class Planning:
    """A plan that is being made: reservations and one blocked job have their bookings."""

    def __init__(self, case: Case) -> None:
        self.snapshot: Snapshot = case.board().snapshot(NOW)
        self.capacity = Capacity(self.snapshot)
        self.rows = np.arange(len(self.snapshot.pending))
        ends = expected_ends(self.snapshot.running, case.policy.assumed_limit_seconds, NOW_SECONDS)
        windows = list_reservation_windows(self.snapshot, NOW)
        for window in windows:
            self.capacity.bookings.append(
                book_capacity_for_window(window, self.snapshot, self.capacity, ends, NOW_SECONDS)
            )
        availability = build_availability(self.snapshot, self.capacity, windows, ends)
        for row in self.rows:
            shape, project, limit = self._request(row)
            if self.placement(row) is None and (
                booking := availability.find_earliest_booking(shape, project, limit)
            ):
                self.capacity.bookings.append(book_capacity_for_job(booking, shape, availability))
                return

    def placement(self, row: int) -> JobPlacement | None:
        shape, project, limit = self._request(row)
        return self.capacity.find_placement(shape, project, NOW_SECONDS + limit)

    def startable(self) -> list[bool]:
        return find_startable(self.rows, self.snapshot, self.capacity, NOW_SECONDS).tolist()

    def start(self, row: int) -> None:
        shape, _, limit = self._request(row)
        job, placement = self.snapshot.jobs[int(self.snapshot.pending["job"][row])], self.placement(row)
        if placement:
            self.capacity.allocate(job, shape, placement, NOW_SECONDS + limit)

    def _request(self, row: int) -> tuple[JobShape, str, float]:
        values = self.snapshot.pending[row]
        job = self.snapshot.jobs[int(values["job"])]
        return self.snapshot.shapes[int(values["shape"])], job.project, float(values["limit"])


@MANY
@given(cases(MANY_WINDOWS), st.integers(0, 2**32))
def test_the_pass_finds_exactly_the_jobs_that_have_a_placement(case: Case, seed: int) -> None:
    planning = Planning(case)
    before = planning.startable()
    for row in Random(seed).sample(planning.rows.tolist(), min(4, len(planning.rows))):
        assert planning.startable() == [planning.placement(other) is not None for other in planning.rows]
        planning.start(row)
    later = planning.startable()
    assert later == [planning.placement(row) is not None for row in planning.rows]
    assert not any(now and not then for now, then in zip(later, before, strict=True)), "a start freed resources"
