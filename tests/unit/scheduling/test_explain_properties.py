"""Properties: every pending job has a reason, and the reason agrees with the plan."""

from hypothesis import given

from heliostat.scheduling.explain.explainer import WaitExplainer
from heliostat.scheduling.plan import plan
from unit.scheduling.builders import NOW
from unit.scheduling.random_cases import MANY, Case, cases


@MANY
@given(cases())
def test_every_pending_job_has_a_reason_and_a_position(case: Case) -> None:
    snapshot = case.board().snapshot(NOW)
    made = plan(snapshot, case.policy, NOW)
    explainer = WaitExplainer(snapshot, case.policy, made, NOW)
    started = {start.job.id for start in made.starts}
    waiting = [job_id for job_id in snapshot.pending["job"].tolist() if job_id not in started]
    told = [explainer.explain(job_id) for job_id in waiting]
    assert sorted(one.position for one in told if one) == list(range(1, len(waiting) + 1))
    assert all(one and one.sentence and "  " not in one.sentence for one in told)


@MANY
@given(cases())
def test_a_job_with_a_booking_never_gets_the_reason_that_no_node_can_run_it(case: Case) -> None:
    snapshot = case.board().snapshot(NOW)
    made = plan(snapshot, case.policy, NOW)
    explainer = WaitExplainer(snapshot, case.policy, made, NOW)
    for head in made.booked_starts:
        told = explainer.explain(head.job_id)
        assert told is not None
        assert told.blocked_by != "nodes", told
