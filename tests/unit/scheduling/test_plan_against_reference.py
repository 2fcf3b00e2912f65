"""Plans compared with the reference planner."""

from dataclasses import replace

from hypothesis import given

from heliostat.scheduling.plan import plan
from heliostat.scheduling.policy import QueueOrdering
from unit.scheduling.builders import NOW
from unit.scheduling.random_cases import ALL, MANY, Case, cases, smallest
from unit.scheduling.reference_planner import ReferencePlanner

PLAIN = replace(ALL, parts=False, mixed_nodes=False, partial_reservations=False, stops=False, classes=False)
PLAIN = replace(
    PLAIN, max_reserved=1, unlimited=False, orders=(QueueOrdering.FIFO, QueueOrdering.SHORTEST_JOB_FIRST)
)
SINGLE = replace(PLAIN, gangs=False, nodes=5, pending=16, running=12)
LONG_QUEUE = replace(SINGLE, nodes=6, running=4, pending=60, reservations=8)  # many tries fail: see startable_jobs


def differences(case: Case) -> list[str]:
    made = plan(case.board().snapshot(NOW), case.policy, NOW)
    return list(ReferencePlanner(case, made).differences())


def blame(found: list[str], case: Case) -> None:
    if found:
        small = smallest(case, lambda smaller: bool(differences(smaller)))
        assert differences(small) == [], small


@MANY
@given(cases(SINGLE))
def test_the_plan_starts_the_same_jobs_as_the_reference_and_books_the_same_time(case: Case) -> None:
    blame(differences(case), case)


@MANY
@given(cases(LONG_QUEUE))
def test_a_long_queue_beside_many_reservations_starts_the_same_jobs_as_the_reference(case: Case) -> None:
    blame(differences(case), case)


@MANY
@given(cases(PLAIN))
def test_the_plan_matches_the_reference_for_gangs_except_for_larger_bookings(case: Case) -> None:
    """A booking of a gang fixes the tasks per node; the reference lets tasks move between its nodes."""
    found = differences(case)
    made = plan(case.board().snapshot(NOW), case.policy, NOW)
    gangs = {job.id for job in case.pending if job.placement.tasks > 1}
    if made.booked_starts and made.booked_starts[0].job_id in gangs:
        found = [words for words in found if not words.endswith("could start")]
    assert found == []
