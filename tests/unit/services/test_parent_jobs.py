"""Dependencies in job requests: references, permissions, cycles and limits."""

from dataclasses import replace
from typing import Any

import pytest

from heliostat.api.job_schemas import BulkSubmitBody
from heliostat.api.validation import read_job
from heliostat.errors import Conflict, HeliostatError, Invalid
from heliostat.models import Caller, Dependency, DependencyCondition, Job, JobState
from heliostat.services.jobs.job_history import load_dependency_view
from heliostat.services.jobs.submission import submit_jobs
from unit.services.site import Site


class FakeController:
    def count_unfinished_jobs(self, user: str) -> int:
        return 0


@pytest.fixture(autouse=True)
def _controller(site: Site) -> None:
    site.context.controller = FakeController()  # type: ignore[misc,assignment]


def submit(site: Site, *bodies: dict[str, Any], caller: Caller | None = None) -> tuple[Job, ...]:
    requests = [read_job({"command": "true", **body}) for body in bodies]
    return submit_jobs(site.context, caller or site.root, requests).jobs


def refused(site: Site, *bodies: dict[str, Any], caller: Caller | None = None) -> HeliostatError:
    with pytest.raises(HeliostatError) as error:
        submit(site, *bodies, caller=caller)
    assert error.value.hint
    return error.value


def test_a_job_waits_for_its_parents(site: Site) -> None:
    submit(site, {}, {}, {})
    (child,) = submit(site, {"after": "1,2", "after_any": 3})
    assert child.after == (Dependency(1), Dependency(2), Dependency(3, DependencyCondition.ANY))
    assert child.parents_left == 3


def test_jobs_of_one_request_wait_for_one_another_by_name_in_any_order(site: Site) -> None:
    bodies: list[dict[str, Any]] = [
        {"name": "train", "after": "prep"},
        {"name": "prep"},
        {"after": ["train", "prep"]},
    ]
    train, prep, last = submit(site, *bodies)
    assert train.after == (Dependency(prep.id),)
    assert last.after == (Dependency(train.id), Dependency(prep.id))
    assert (prep.parents_left, train.parents_left, last.parents_left) == (0, 1, 2)


def test_a_job_waits_for_a_whole_array_by_its_number_or_its_name(site: Site) -> None:
    array = submit(site, {"array": "0-2"})
    (child,) = submit(site, {"after": f"array:{array[0].array_id}"})
    assert [one.parent_id for one in child.after] == [job.id for job in array]
    *array_again, collect = submit(site, {"array": "0-2", "name": "sweep"}, {"after": "sweep"})
    assert [one.parent_id for one in collect.after] == [job.id for job in array_again]


def test_elements_wait_for_the_elements_of_the_same_index(site: Site) -> None:
    array = submit(site, {"array": "1,3,5"})
    children = submit(site, {"array": "3,5", "after_each": f"array:{array[0].array_id}"})
    assert [child.after for child in children] == [(Dependency(array[1].id),), (Dependency(array[2].id),)]


def test_after_each_needs_matching_indexes(site: Site) -> None:
    submit(site, {"array": "0-2"}, {})
    assert "no element 3" in refused(site, {"array": "2-3", "after_each": "array:1"}).message
    assert "after_each" in refused(site, {"after_each": "array:1"}).fields
    assert "after_each" in refused(site, {"array": "0-1", "after_each": "4"}).fields


def test_cycles_are_refused_by_name(site: Site) -> None:
    loop: list[dict[str, Any]] = [
        {"name": "a", "after": "b"},
        {"name": "b", "after_any": "c"},
        {"name": "c", "after": "a"},
    ]
    error = refused(site, {"name": "first"}, *loop)
    assert "a → b → c → a" in error.message
    assert error.code == "cycle"
    assert "a → a" in refused(site, {"name": "a", "after": "a"}).message
    assert "a → a" in refused(site, {"name": "a", "array": "0-1", "after_each": "a"}).message


def test_ambiguous_names_are_refused(site: Site) -> None:
    assert "No job of this request is named 'prep'" in refused(site, {"after": "prep"}).message
    twins: list[dict[str, Any]] = [{"name": "a"}, {"name": "a"}, {"after": "a"}]
    assert "2 jobs of this request are named 'a'" in refused(site, *twins).message


def test_parents_that_the_caller_may_not_inspect_are_refused(site: Site) -> None:
    submit(site, {}, {"array": "0-1"})
    bob = site.person("bob")
    bob = replace(bob, user=replace(bob.user, unix_user="bob"))
    for field, hidden, unknown in (("after", "1", "99"), ("after_any", "array:1", "array:99")):
        there, nowhere = (refused(site, {field: name}, caller=bob) for name in (hidden, unknown))
        assert isinstance(there, Invalid)
        assert there.message.replace(hidden.removeprefix("array:"), "N") == nowhere.message.replace("99", "N")
        assert field in there.fields
    mine = submit(site, {}, caller=bob)
    assert submit(site, {"after": mine[0].id}, caller=bob)[0].parents_left == 1
    assert submit(site, {"after": mine[0].id})[0].parents_left == 1  # an admin may inspect it


def test_a_parent_with_a_future_id_is_refused(site: Site) -> None:
    assert "no job 2 that your job can depend on" in refused(site, {}, {"after": 2}).message


def test_ended_parents_count_as_met(site: Site) -> None:
    over = {"ended_at": site.clock.at}
    site.add_job(1, state=JobState.COMPLETED, **over)
    site.add_job(2, state=JobState.FAILED, **over)
    site.context.store.reserve_job_ids(2)
    (child,) = submit(site, {"after": 1, "after_any": 2, "after_failed": 2})
    assert (child.parents_left, len(child.after)) == (0, 3)
    assert child.queue_wait_seconds(site.clock.at) == 0


def test_a_job_that_could_never_start_is_refused(site: Site) -> None:
    over = {"ended_at": site.clock.at}
    site.add_job(1, state=JobState.COMPLETED, **over)
    site.add_job(2, state=JobState.TIMED_OUT, **over)
    site.context.store.reserve_job_ids(2)
    error = refused(site, {"after": 2})
    assert isinstance(error, Conflict)
    assert error.message.startswith("Job 2 timed out")
    assert refused(site, {"after_failed": 1}).message.startswith("Job 1 completed")


def test_too_many_dependencies_are_refused_with_a_hint(site: Site) -> None:
    error = refused(site, {"name": "a", "array": "0-999"}, {"name": "b", "array": "0-999", "after": "a"})
    assert "1000000 dependencies" in error.message
    assert "Add a small job" in (error.hint or "")


def test_a_long_chain_in_one_request_is_taken(site: Site) -> None:
    bodies: list[dict[str, Any]] = [{"name": f"j{number}", "after": f"j{number - 1}"} for number in range(1, 3000)]
    jobs = submit(site, {"name": "j0"}, *bodies)
    assert all(job.parents_left == 1 for job in jobs[1:])


def test_the_same_request_again_gives_the_same_jobs_also_when_its_parent_has_failed_meanwhile(site: Site) -> None:
    submit(site, {})
    request = [read_job({"command": "true", "after": 1, "begin": "+2h"})]
    first = submit_jobs(site.context, site.root, request, "key")
    site.clock.at += (first.jobs[0].begin_at or site.clock.at) - site.clock.at
    again = submit_jobs(site.context, site.root, request, "key")
    assert again.job_ids == first.job_ids


def test_a_job_has_parents_and_children(site: Site) -> None:
    submit(site, {})
    (middle,) = submit(site, {"after": 1})
    submit(site, {"after_any": middle.id}, {"after": middle.id})
    with site.context.store.read() as conn:
        family = load_dependency_view(conn, middle)
        few = load_dependency_view(conn, middle, limit=1)
    assert [(job.id, rule) for job, rule in family.parents] == [(1, DependencyCondition.OK)]
    assert [(job.id, rule) for job, rule in family.children] == [
        (3, DependencyCondition.ANY),
        (4, DependencyCondition.OK),
    ]
    assert (len(few.children), few.child_count) == (1, 2)


def test_too_many_references_are_refused_before_any_lookup(site: Site) -> None:
    body = {"array": "0-99", "after": list(range(1, 2000))}
    assert "199900 dependencies" in refused(site, body).message
    with pytest.raises(ValueError, match="100000 dependencies in total"):
        BulkSubmitBody.model_validate({"jobs": [{"command": "true", "after": [1] * 9000}] * 12})
