"""The fast plan against one that is slow and easy to believe."""

from dataclasses import replace

from hypothesis import given

from heliostat.scheduling.plan import plan
from heliostat.scheduling.policy import QueueOrdering
from unit.scheduling.cases import ALL, MANY, Case, cases, smallest
from unit.scheduling.made_up import NOW
from unit.scheduling.oracle import Oracle

PLAIN = replace(ALL, parts=False, mixed_nodes=False, partial_reservations=False, stops=False, classes=False)
PLAIN = replace(
    PLAIN, max_reserved=1, unlimited=False, orders=(QueueOrdering.FIFO, QueueOrdering.SHORTEST_JOB_FIRST)
)
SINGLE = replace(PLAIN, gangs=False, nodes=5, pending=16, running=12)


def complaints(case: Case) -> list[str]:
    made = plan(case.board().snapshot(NOW), case.policy, NOW)
    return list(Oracle(case, made).complaints())


def blame(found: list[str], case: Case) -> None:
    if found:
        small = smallest(case, lambda smaller: bool(complaints(smaller)))
        assert complaints(small) == [], small


@MANY
@given(cases(SINGLE))
def test_the_plan_starts_just_those_the_oracle_starts_and_books_the_same_time(case: Case) -> None:
    blame(complaints(case), case)


@MANY
@given(cases(PLAIN))
def test_so_it_is_for_gangs_except_that_more_may_be_kept_for_a_blocked_one(case: Case) -> None:
    """For a blocked gang room is kept task by task; the oracle would let its tasks move between their nodes."""
    found = complaints(case)
    made = plan(case.board().snapshot(NOW), case.policy, NOW)
    gangs = {job.id for job in case.pending if job.placement.tasks > 1}
    if made.booked_starts and made.booked_starts[0].job_id in gangs:
        found = [words for words in found if not words.endswith("could start")]
    assert found == []
