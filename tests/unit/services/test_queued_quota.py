from dataclasses import replace

import pytest

from heliostat.errors import Conflict
from heliostat.models import Job, JobState, PlacementRequest, Resources
from heliostat.services.accounts import projects, users
from heliostat.services.accounts.projects import ProjectOrDepartmentChange
from heliostat.services.accounts.quotas import check_queued_gpu_quota
from heliostat.services.accounts.users import UserChange
from unit.services.site import Site, a_job


def submit(site: Site, *jobs: Job) -> None:
    site.context.store.write(lambda tx: check_queued_gpu_quota(site.context, tx.conn, jobs))


def of(gpus: float, project: str = "default", tasks: int = 1) -> Job:
    job = a_job(0, None)
    return replace(job, project=project, resources=Resources(gpus=gpus), placement=PlacementRequest(tasks=tasks))


def limit_project(site: Site, most: int | None, name: str = "default") -> None:
    projects.update_project(site.context, site.root, name, ProjectOrDepartmentChange(quota={"queued_gpus": most}))


def test_without_a_quota_the_queue_is_not_read(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "heliostat.services.accounts.quotas.sum_requested_gpus", lambda conn: pytest.fail("the queue was read")
    )
    submit(site, of(1000))
    limit_project(site, 4)
    submit(site, of(0))
    limit_project(site, None)
    submit(site, of(1000))


def test_jobs_above_the_quota_are_refused_with_a_hint(site: Site) -> None:
    limit_project(site, 4)
    site.add_job(1, resources=Resources(gpus=2))
    submit(site, of(2))
    with pytest.raises(Conflict) as caught:
        submit(site, of(1), of(2))
    assert caught.value.code == "quota"
    assert "project default" in caught.value.message
    assert "request 2, this request adds 3" in caught.value.message
    assert "helio project set default --queued-gpus 5" in str(caught.value.hint)


def test_tasks_and_fractions_count_and_ended_jobs_do_not(site: Site) -> None:
    limit_project(site, 4)
    site.add_job(1, resources=Resources(gpus=1), placement=PlacementRequest(tasks=3), state=JobState.RUNNING)
    site.add_job(2, resources=Resources(gpus=4), state=JobState.COMPLETED, ended_at=site.clock.at)
    submit(site, of(0.5), of(0.5))
    with pytest.raises(Conflict):
        submit(site, of(0.5, tasks=3))


def test_an_exclusive_job_counts_with_all_gpus_of_its_node(site: Site) -> None:
    limit_project(site, 8)
    alone = PlacementRequest(exclusive=True)
    site.add_job(1, resources=Resources(gpus=0), placement=alone, node="n1", state=JobState.RUNNING, attempt=1)
    site.add_job(2, resources=Resources(gpus=0), placement=alone, node="n3", state=JobState.RUNNING, attempt=1)
    submit(site, of(4))
    submit(site, replace(of(0), placement=alone))
    with pytest.raises(Conflict, match="request 4, this request adds 8"):
        submit(site, replace(of(1), placement=PlacementRequest(tasks=2, exclusive=True)))
    with pytest.raises(Conflict):
        submit(site, of(5))


def test_a_user_quota_applies_to_all_their_projects(site: Site) -> None:
    site.project("other")
    users.update_user(site.context, site.root, "root", UserChange(quota={"queued_gpus": 3}))
    site.add_job(1, resources=Resources(gpus=2), project="other")
    submit(site, of(1))
    with pytest.raises(Conflict, match="user root"):
        submit(site, of(2))


def test_a_department_quota_applies_to_its_projects_only(site: Site) -> None:
    projects.create_department(site.context, site.root, "physics")
    site.project("optics", "physics")
    site.project("lasers", "physics")
    limits = ProjectOrDepartmentChange(quota={"queued_gpus": 3})
    projects.update_department(site.context, site.root, "physics", limits)
    site.add_job(1, resources=Resources(gpus=2), project="optics")
    site.add_job(2, resources=Resources(gpus=50))
    submit(site, of(1, "lasers"), of(100))
    with pytest.raises(Conflict, match="department physics"):
        submit(site, of(1, "lasers"), of(1, "optics"))


def test_a_quota_of_0_allows_jobs_without_gpus(site: Site) -> None:
    limit_project(site, 0)
    submit(site, of(0))
    with pytest.raises(Conflict):
        submit(site, of(0.1))
