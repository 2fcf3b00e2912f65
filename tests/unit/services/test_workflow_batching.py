"""When many jobs become ready at once, their common parents are looked up once."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Row

from heliostat.models import Caller, JobState
from heliostat.services.accounts.users import UserChange, update_user
from heliostat.store import jobs as stored_jobs
from heliostat.store import workflow_start_decisions
from heliostat.workflows.start_decision import FinishedParent
from unit.services.site import Site
from unit.services.test_workflow_service import FakeController, end, jobs_of, states, submitted

MANY = 12


@pytest.fixture
def ann(site: Site) -> Caller:
    site.context.controller = FakeController()  # type: ignore[misc,assignment]
    site.project("vision")
    caller = site.person("alice", "vision")
    return replace(caller, user=update_user(site.context, site.root, "alice", UserChange(unix_user="alice")))


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of ended jobs that were read, each as often as it was read."""
    read, found = workflow_start_decisions._finished_parent, list[str]()

    def counting(row: Row[Any], named: frozenset[str]) -> FinishedParent:
        found.append(row.key)
        return read(row, named)

    monkeypatch.setattr(workflow_start_decisions, "_finished_parent", counting)
    return found


def variants(*words: str, **more: Any) -> dict[str, Any]:
    return {"command": ["echo", *words], "matrix": {"x": list(range(MANY))}, **more}


def test_parents_are_looked_up_once_for_all_their_children(site: Site, ann: Caller, looked_up: list[str]) -> None:
    best = "${{ argmax(jobs.a.outputs.v) }}-${{ join(jobs.a.outputs.v) }}"
    number = submitted(site, ann, {"a": variants(), "b": variants(best, "${{ matrix.x }}", needs="a")})
    jobs = jobs_of(site, ann, number)
    for place in reversed(range(MANY)):
        end(site, jobs[f"a.{place + 1}"], v=str(place % 7))
    assert len(looked_up) == MANY
    joined = ",".join(str(place % 7) for place in range(MANY))
    with site.context.store.read() as conn:
        whole = stored_jobs.get_jobs(conn, [jobs[f"b.{place + 1}"].id for place in range(MANY)])
    words = [job.spec.command for job in whole.values()]
    assert words == [("echo", f"a.7-{joined}", str(place)) for place in range(MANY)]


def test_decisions_of_the_same_round_are_visible_to_later_jobs(
    site: Site, ann: Caller, looked_up: list[str]
) -> None:
    """The failure of `a` skips all of `b`, and `c`, who needs both, learns of all of it in the same round."""
    after = {"command": ["true"], "needs": ["a", "b"], "if": "failure() and jobs.a.state == 'failed'"}
    number = submitted(
        site, ann, {"a": {"command": ["true"]}, "b": variants(needs="a"), "c": after, "d": variants(needs="c")}
    )
    end(site, jobs_of(site, ann, number)["a"], JobState.FAILED)
    found = states(site, ann, number)
    assert {found[f"b.{place + 1}"] for place in range(MANY)} == {"skipped"}
    assert (found["c"], found["d.1"]) == ("pending", "pending")
    assert looked_up.count("a") == 2, "once for b, once for c"
    assert len(looked_up) == 2 + MANY
