from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliostat.models import Caller, Job, JobState, PlacementRequest, Resources
from heliostat.services.accounts import projects, users
from heliostat.services.accounts.own_usage import list_own_quota_usage
from heliostat.services.accounts.projects import ProjectOrDepartmentChange
from heliostat.services.accounts.users import UserChange
from unit.services.site import Site


@pytest.fixture
def ann(site: Site) -> Caller:
    site.project("vision")
    return site.person("ann", "vision")


def queue(site: Site, *active: Job) -> None:
    cast(Any, site.context).controller = SimpleNamespace(active_jobs_and_pending_count=lambda: (list(active), 0))


def found(site: Site, caller: Caller) -> list[tuple[str, str, str, int, float]]:
    return [
        (one.scope, one.name, one.limit_name, one.maximum, one.used)
        for one in list_own_quota_usage(site.context, caller)
    ]


def test_a_user_without_quotas_has_no_quota_usage(site: Site, ann: Caller) -> None:
    assert found(site, ann) == []


def test_each_limit_is_listed_with_its_usage(site: Site, ann: Caller) -> None:
    runs = site.add_job(
        1,
        user="ann",
        project="vision",
        state=JobState.RUNNING,
        node="n1",
        devices=("n1-0", "n1-1"),
        resources=Resources(gpus=1),
        placement=PlacementRequest(tasks=2),
    )
    site.add_job(2, user="ann", project="vision", resources=Resources(gpus=0.5))
    site.add_job(3, user="root", project="vision")
    site.add_job(4, user="root", project="default")
    queue(site, runs, replace(runs, id=9, user="root", project="default"))
    users.update_user(site.context, site.root, "ann", UserChange(quota={"running_gpus": 4, "queued_gpus": 8}))
    projects.update_project(
        site.context, site.root, "vision", ProjectOrDepartmentChange(quota={"queued_gpus": 10})
    )
    projects.update_department(
        site.context, site.root, "default", ProjectOrDepartmentChange(quota={"running_gpus": 20})
    )
    assert found(site, ann) == [
        ("user", "ann", "running_gpus", 4, 2),
        ("user", "ann", "queued_gpus", 8, 2.5),
        ("project", "vision", "queued_gpus", 10, 3.5),
        ("department", "default", "running_gpus", 20, 4),
    ]


def test_an_exclusive_job_counts_with_all_gpus_of_its_node(site: Site, ann: Caller) -> None:
    alone = site.add_job(
        1,
        user="ann",
        project="vision",
        state=JobState.RUNNING,
        node="n1",
        devices=("n1-0",),
        placement=PlacementRequest(exclusive=True),
    )
    queue(site, alone)
    users.update_user(site.context, site.root, "ann", UserChange(quota={"running_gpus": 4, "queued_gpus": 8}))
    assert [used for *_, used in found(site, ann)] == [4, 4]


def test_quotas_of_other_projects_are_not_listed(site: Site, ann: Caller) -> None:
    site.project("other")
    projects.update_project(site.context, site.root, "other", ProjectOrDepartmentChange(quota={"running_gpus": 1}))
    assert found(site, ann) == []
