"""Workflows: atomic submission, decisions when parents end, retries of failed jobs."""

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from heliostat.api.validation import read_job
from heliostat.errors import Conflict, Forbidden, HeliostatError, Invalid, NotFound, TooLarge
from heliostat.models import Caller, Job, JobState
from heliostat.models.workflows import WorkflowJobCounts, WorkflowState
from heliostat.services.accounts.users import UserChange, update_user
from heliostat.services.workflows import lifecycle as services
from heliostat.services.workflows.plans import WorkflowPlan, plan_workflow
from heliostat.store import job_writes
from heliostat.store import jobs as stored_jobs
from heliostat.store.database import Transaction
from heliostat.store.workflows import set_job_outputs
from heliostat.workflows import start_decision
from unit.services.site import Site


class FakeController:
    def count_unfinished_jobs(self, user: str) -> int:
        return 0


@pytest.fixture(autouse=True)
def _controller(site: Site) -> None:
    site.context.controller = FakeController()  # type: ignore[misc,assignment]


def person(site: Site, name: str) -> Caller:
    caller = site.person(name, "vision")
    return replace(caller, user=update_user(site.context, site.root, name, UserChange(unix_user=name)))


@pytest.fixture
def ann(site: Site) -> Caller:
    site.project("vision")
    return person(site, "alice")


def job(*needs: str, **fields: Any) -> dict[str, Any]:
    return {"command": ["true"], **({"needs": list(needs)} if needs else {}), **fields}


def plan(jobs: dict[str, Any], params: dict[str, Any] | None = None, **given: Any) -> WorkflowPlan:
    return plan_workflow({"name": "train", "jobs": jobs, "params": params or {}}, given, read_job)


def submitted(site: Site, caller: Caller, jobs: dict[str, Any], **options: Any) -> int:
    return services.submit_workflow(site.context, caller, plan(jobs, **options)).id


def jobs_of(site: Site, caller: Caller, number: int) -> dict[str, Job]:
    return {row.key: job for row, job in services.get_workflow(site.context, caller, number).jobs}


def states(site: Site, caller: Caller, number: int) -> dict[str, str]:
    found = services.get_workflow(site.context, caller, number)
    return {row.key: row.outcome or job.state.value for row, job in found.jobs}


def end(site: Site, one: Job, state: JobState = JobState.COMPLETED, **values: str) -> None:
    """As the controller would, after it has read what the job hands on."""
    site.context.store.write(lambda tx: set_job_outputs(tx, one.id, values))
    steps = [JobState.STARTING, JobState.RUNNING, state]

    def change(tx: Transaction) -> None:
        at = site.clock.at
        for step in steps:
            ended = {"ended_at": at} if step is state else {}
            done = job_writes.apply_transitions(
                tx, [job_writes.JobTransition(one.id, step, "ended", at, None, ended)]
            )
            assert done, f"{one.name} could not become {step}"

    site.context.store.write(change)


def spec_of(site: Site, one: Job) -> Any:
    with site.context.store.read() as conn:
        found = stored_jobs.get_job(conn, one.id)
    assert found is not None
    return found.spec


def test_a_child_gets_the_outputs_of_its_ended_parent(site: Site, ann: Caller) -> None:
    late = {"command": ["run", "${{ jobs.prep.outputs.best }}"], "env": {"B": "<${{ jobs.prep.outputs.best }}>"}}
    number = submitted(site, ann, {"prep": job(), "train": {**late, "needs": "prep"}})
    found = jobs_of(site, ann, number)
    assert found["train"].parents_left == 1
    assert found["prep"].part is not None
    assert found["prep"].part.key == "prep"
    end(site, found["prep"], best="a; rm -rf /")
    spec = spec_of(site, found["train"])
    assert spec.command == ("run", "a; rm -rf /")
    assert spec.env["B"] == "<a; rm -rf />"
    assert jobs_of(site, ann, number)["train"].parents_left == 0


def test_a_missing_output_prevents_the_child_from_starting(site: Site, ann: Caller) -> None:
    number = submitted(
        site, ann, {"prep": job(), "train": job("prep", command=["x", "${{ jobs.prep.outputs.a }}"])}
    )
    end(site, jobs_of(site, ann, number)["prep"])
    train = jobs_of(site, ann, number)["train"]
    assert (train.state, states(site, ann, number)["train"]) == (JobState.CANCELLED, "refused")
    assert "job prep has no output a" in (train.reason or "")
    assert services.get_workflow(site.context, ann, number).tally.state is WorkflowState.FAILED


def test_an_undecidable_child_does_not_prevent_its_parent_from_ending(
    site: Site, ann: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = submitted(
        site, ann, {"prep": job(), "train": job("prep", **{"if": "params.n == 1"})}, params={"n": 1}
    )

    def broken(*_: object) -> None:
        raise OverflowError("cannot convert float infinity to integer")

    monkeypatch.setattr(start_decision, "evaluate", broken)
    end(site, jobs_of(site, ann, number)["prep"])
    assert states(site, ann, number) == {"prep": "completed", "train": "refused"}
    assert "cannot be evaluated" in (jobs_of(site, ann, number)["train"].reason or "")


def test_an_infinite_number_is_refused_before_any_job_runs(site: Site) -> None:
    for late in ({"if": "join(1e999) == 'x'"}, {"command": ["${{ 1e999 }}", "${{ jobs.prep.state }}"]}):
        with pytest.raises(Invalid, match="is too large") as caught:
            plan({"prep": job(), "train": job("prep", **late)})
        assert caught.value.fields


def test_the_size_limit_applies_to_jobs_without_arrays_too(site: Site, ann: Caller) -> None:
    settings = replace(
        site.context.settings, server=replace(site.context.settings.server, max_request_bytes=10_000)
    )
    site.context.settings = settings  # type: ignore[misc]
    jobs = {"a": job(env={"A": "y" * 1000}, matrix={"x": list(range(11))})}
    with pytest.raises(TooLarge, match="The expanded jobs are larger") as caught:
        submitted(site, ann, jobs)
    assert caught.value.hint
    assert services.list_workflows(site.context, ann) == []


def test_condition_and_command_of_a_child_use_outputs(site: Site, ann: Caller) -> None:
    late = job("prep", command=["run", "${{ jobs.prep.outputs.a }}"], **{"if": "jobs.prep.outputs.b == 2"})
    number = submitted(site, ann, {"prep": job(), "train": late})
    end(site, jobs_of(site, ann, number)["prep"], a="1", b="2", c="3")
    assert spec_of(site, jobs_of(site, ann, number)["train"]).command == ("run", "1")


def test_failure_success_and_always_decide_which_jobs_start(site: Site, ann: Caller) -> None:
    jobs = {
        "a": job(),
        "good": job("a"),
        "bad": job("a", **{"if": "failure()"}),
        "both": job("good", "bad", **{"if": "always()"}),
        "after": job("good"),
        "far": job("after", **{"if": "failure()"}),
    }
    number = submitted(site, ann, jobs)
    end(site, jobs_of(site, ann, number)["a"], JobState.FAILED)
    found = states(site, ann, number)
    assert found["good"] == found["after"] == "skipped"
    assert found["bad"] == found["far"] == "pending"
    assert jobs_of(site, ann, number)["both"].parents_left == 1
    end(site, jobs_of(site, ann, number)["bad"])
    assert jobs_of(site, ann, number)["both"].parents_left == 0


def test_a_condition_on_parameters_is_decided_at_submission(site: Site, ann: Caller) -> None:
    jobs = {"a": job(**{"if": "params.mode == 'full'"}), "b": job("a"), "c": job("b", **{"if": "always()"})}
    params = {"mode": "quick"}
    number = submitted(site, ann, jobs, params=params)
    assert states(site, ann, number) == {"a": "skipped", "b": "skipped", "c": "pending"}
    assert jobs_of(site, ann, number)["c"].parents_left == 0
    number = submitted(site, ann, jobs, params=params, mode="full")
    assert states(site, ann, number) == dict.fromkeys("abc", "pending")


def test_continue_on_failure_does_not_fail_other_jobs(site: Site, ann: Caller) -> None:
    number = submitted(site, ann, {"a": job(continue_on_failure=True), "b": job("a")})
    end(site, jobs_of(site, ann, number)["a"], JobState.FAILED)
    end(site, jobs_of(site, ann, number)["b"])
    tally = services.get_workflow(site.context, ann, number).tally
    assert (tally.state, tally.forgiven) == (WorkflowState.COMPLETED, 1)


def test_a_job_with_many_parents_is_decided_when_the_last_has_ended(site: Site, ann: Caller) -> None:
    many = job(matrix={"x": [1, 2, 3]})
    best = {"command": ["${{ argmax(jobs.t.outputs.acc) }}"], "needs": "t"}
    number = submitted(site, ann, {"t": many, "best": best})
    found = jobs_of(site, ann, number)
    for key, acc in (("t.2", "0.7"), ("t.3", "0.9"), ("t.1", "0.1")):
        assert jobs_of(site, ann, number)["best"].parents_left > 0
        end(site, found[key], acc=acc)
    assert spec_of(site, found["best"]).command == ("t.3",)


def test_the_same_key_gives_the_same_workflow_and_another_request_is_refused(site: Site, ann: Caller) -> None:
    made = [services.submit_workflow(site.context, ann, plan({"a": job()}), "k") for _ in range(2)]
    assert made[0] == made[1]
    assert len(services.list_workflows(site.context, ann)) == 1
    with pytest.raises(Conflict):
        services.submit_workflow(site.context, ann, plan({"b": job()}), "k")


def test_a_refused_workflow_leaves_no_jobs(site: Site, ann: Caller) -> None:
    with pytest.raises(Invalid, match=r"job b: gpus"):
        plan({"a": job(), "b": job("a", gpus=-1)})
    with pytest.raises(Invalid, match=r"jobs\.a\.retries: .*\njobs\.b\.array: "):
        plan({"a": job(retries=-1), "b": job("a", array="0-3")})
    with pytest.raises(HeliostatError):
        submitted(site, ann, {"a": job(), "b": job("a", gpus=1000)})
    assert services.list_workflows(site.context, ann) == []


def test_a_retry_includes_failed_jobs_and_their_descendants(site: Site, ann: Caller) -> None:
    jobs = {
        "a": job(),
        "b": job("a", matrix={"x": [1, 2]}),
        "c": job("b", command=["c", "${{ jobs.a.outputs.v }}"], needs=["a", "b"]),
        "d": job("c", **{"if": "failure()"}),
    }
    number = submitted(site, ann, jobs)
    first = jobs_of(site, ann, number)
    end(site, first["a"], v="7")
    end(site, first["b.1"])
    with pytest.raises(Conflict, match="has not ended"):
        services.retry_workflow(site.context, ann, number, read_job)
    end(site, first["b.2"], JobState.FAILED)
    end(site, jobs_of(site, ann, number)["d"])
    services.retry_workflow(site.context, ann, number, read_job)
    second = jobs_of(site, ann, number)
    assert {key for key in second if second[key].id != first[key].id} == {"b.2", "c", "d"}
    end(site, second["b.2"])
    assert spec_of(site, second["c"]).command == ("c", "7")
    end(site, second["c"])
    assert states(site, ann, number) == {
        "a": "completed",
        "b.1": "completed",
        "b.2": "completed",
        "c": "completed",
        "d": "skipped",
    }
    with pytest.raises(Conflict, match="No job of workflow"):
        services.retry_workflow(site.context, ann, number, read_job)


def test_cancelling_starts_no_job(site: Site, ann: Caller) -> None:
    jobs = {"a": job(), "b": job("a", **{"if": "always()"}), "c": job("b", **{"if": "failure()"})}
    number = submitted(site, ann, jobs)
    assert len(services.cancel_workflow(site.context, ann, number)) == 3
    assert {one.state for one in jobs_of(site, ann, number).values()} == {JobState.CANCELLED}
    assert services.cancel_workflow(site.context, ann, number) == []


def test_other_users_cannot_see_or_change_a_workflow(site: Site, ann: Caller) -> None:
    number = submitted(site, ann, {"a": job()})
    bob = person(site, "bob")
    assert services.list_workflows(site.context, bob, all_users=True) == []
    with pytest.raises(NotFound):
        services.get_workflow(site.context, bob, number)
    with pytest.raises(NotFound):
        services.cancel_workflow(site.context, bob, number)
    with pytest.raises(NotFound):
        services.retry_workflow(site.context, bob, number, read_job)
    with pytest.raises(Forbidden):
        services.get_workflow_document(site.context, site.root, number)
    with pytest.raises(Forbidden):
        services.retry_workflow(site.context, site.root, number, read_job)
    assert len(services.list_workflows(site.context, site.root, all_users=True)) == 1


def test_random_graphs_end_as_a_reference_implementation_says(site: Site, ann: Caller) -> None:
    chance = random.Random(7)
    for _ in range(12):
        size = chance.randint(2, 9)
        needs = {f"n{i}": chance.sample([f"n{j}" for j in range(i)], min(i, 2)) for i in range(size)}
        rules = {key: chance.choice([None, None, "failure()", "always()", "success()"]) for key in needs}
        fails = {key: chance.random() < 0.3 for key in needs}
        jobs = {key: job(*needs[key], **({"if": rule} if (rule := rules[key]) else {})) for key in needs}
        number = submitted(site, ann, jobs)
        _run_all(site, ann, number, fails)
        assert states(site, ann, number) == _expected(needs, rules, fails)


def _run_all(site: Site, ann: Caller, number: int, fails: dict[str, bool]) -> None:
    while ready := [
        (key, one)
        for key, one in jobs_of(site, ann, number).items()
        if one.state is JobState.PENDING and not one.parents_left
    ]:
        key, one = ready[0]
        site.clock.at += timedelta(seconds=1)
        end(site, one, JobState.FAILED if fails[key] else JobState.COMPLETED)


def _expected(needs: dict[str, list[str]], rules: dict[str, str | None], fails: dict[str, bool]) -> dict[str, str]:
    found: dict[str, str] = {}
    tainted: dict[str, bool] = {}
    for key, parents in needs.items():
        tainted[key] = any(found[one] == "failed" or tainted[one] for one in parents)
        met = {
            "always()": True,
            "failure()": tainted[key],
            "success()": all(found[one] == "completed" for one in parents),
        }
        if not met[rules[key] or "success()"]:
            found[key] = "skipped"
            continue
        found[key] = "failed" if fails[key] else "completed"
    return found


@pytest.mark.parametrize(
    ("tally", "state"),
    [
        (WorkflowJobCounts(waiting=2), WorkflowState.PENDING),
        (WorkflowJobCounts(waiting=1, completed=1), WorkflowState.RUNNING),
        (WorkflowJobCounts(active=1, failed=1), WorkflowState.RUNNING),
        (WorkflowJobCounts(completed=2, skipped=1, forgiven=1), WorkflowState.COMPLETED),
        (WorkflowJobCounts(completed=2, failed=1, cancelled=1), WorkflowState.FAILED),
        (WorkflowJobCounts(completed=2, cancelled=1), WorkflowState.CANCELLED),
    ],
)
def test_the_state_of_a_workflow_follows_from_its_jobs(tally: WorkflowJobCounts, state: WorkflowState) -> None:
    assert tally.state is state
