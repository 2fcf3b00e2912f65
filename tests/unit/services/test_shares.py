from collections.abc import Callable
from typing import Any

import pytest

from heliostat.errors import Forbidden, Invalid, NotFound
from heliostat.models import Caller, JobRequest, JobSpec, JobState, Quota, Role
from heliostat.services.accounts import projects, users
from heliostat.services.accounts.projects import ProjectOrDepartmentChange
from heliostat.services.accounts.users import UserChange
from heliostat.services.cluster.nodes import NodeChange, update_node
from heliostat.services.jobs.submission import submit_jobs
from heliostat.store.jobs import get_job
from unit.services.site import Site


def test_a_department_and_a_project_start_with_share_1_and_no_quota(site: Site) -> None:
    (department,) = projects.list_departments(site.context, site.root)
    project = projects.get_project(site.context, site.root, "default")
    assert (department.share, department.quota) == (1, Quota())
    assert (project.share, project.quota, project.data_class) == (1, Quota(), 0)


def test_an_admin_changes_the_share_and_quota_of_a_department(site: Site) -> None:
    wish = ProjectOrDepartmentChange(share=3, quota={"running_gpus": 8})
    changed = projects.update_department(site.context, site.root, "default", wish)
    assert (changed.share, changed.quota) == (3, Quota(running_gpus=8))
    assert projects.list_departments(site.context, site.root) == [changed]
    entry = site.audit()[0]
    assert (entry.action, entry.target) == ("department.set", "default")
    assert entry.detail == {"share": [1, 3], "running_gpus": [None, 8]}


def test_only_named_limits_change_and_none_removes_a_limit(site: Site) -> None:
    def set_quota(**quota: int | None) -> Quota:
        return projects.update_project(site.context, site.root, "default", ProjectOrDepartmentChange(quota=quota))[
            0
        ].quota

    assert set_quota(running_gpus=8, queued_gpus=0) == Quota(8, 0)
    assert set_quota(gpu_hours_per_month=100) == Quota(8, 0, 100)
    assert set_quota(running_gpus=None, gpu_hours_per_month=None) == Quota(None, 0)
    assert set_quota(queued_gpus=None) == Quota()


def test_the_scheduler_sees_a_change_at_once(site: Site) -> None:
    woken: list[bool] = []
    site.context.scheduling_rules.on_change(lambda: woken.append(True))
    assert site.context.scheduling_rules.share_accounts().project_or_default("default").share == 1
    projects.update_project(site.context, site.root, "default", ProjectOrDepartmentChange(share=5, data_class=2))
    users.update_user(site.context, site.root, "root", UserChange(quota={"running_gpus": 1}))
    accounts = site.context.scheduling_rules.share_accounts()
    assert (accounts.project_or_default("default").share, accounts.project_or_default("default").data_class) == (
        5,
        2,
    )
    assert accounts.quota_of_user("root") == Quota(running_gpus=1)
    assert len(woken) == 2


def test_a_change_that_changes_nothing_is_not_in_the_audit_log(site: Site) -> None:
    before = site.audit()
    projects.update_department(site.context, site.root, "default", ProjectOrDepartmentChange(share=1))
    projects.update_project(
        site.context, site.root, "default", ProjectOrDepartmentChange(1, 0, {"queued_gpus": None})
    )
    users.update_user(site.context, site.root, "root", UserChange(quota={"queued_gpus": None}))
    assert site.audit() == before


@pytest.mark.parametrize("share", [0, -1, 10_001])
def test_a_share_out_of_range_is_refused_with_its_field(site: Site, share: int) -> None:
    for update in (projects.update_department, projects.update_project):
        with pytest.raises(Invalid) as caught:
            update(site.context, site.root, "default", ProjectOrDepartmentChange(share=share))
        assert set(caught.value.fields) == {"share"}


@pytest.mark.parametrize("data_class", [-1, 4])
def test_a_data_class_out_of_range_is_refused_with_its_field(site: Site, data_class: int) -> None:
    with pytest.raises(Invalid) as caught:
        projects.update_project(
            site.context, site.root, "default", ProjectOrDepartmentChange(data_class=data_class)
        )
    assert set(caught.value.fields) == {"data_class"}


def test_what_does_not_exist_is_not_found(site: Site) -> None:
    for update in (projects.update_department, projects.update_project):
        with pytest.raises(NotFound):
            update(site.context, site.root, "no\nsuch", ProjectOrDepartmentChange(share=2))


UPDATES: list[Callable[[Site, Caller], Any]] = [
    lambda site, caller: projects.update_department(
        site.context, caller, "default", ProjectOrDepartmentChange(share=2)
    ),
    lambda site, caller: projects.update_project(
        site.context, caller, "default", ProjectOrDepartmentChange(share=2)
    ),
    lambda site, caller: users.update_user(site.context, caller, "ann", UserChange(quota={"queued_gpus": None})),
]


@pytest.mark.parametrize("update", UPDATES)
def test_only_admins_change_shares_and_quotas(site: Site, update: Callable[[Site, Caller], Any]) -> None:
    ann = site.person("ann")
    before = site.audit()
    with pytest.raises(Forbidden):
        update(site, ann)
    assert site.audit() == before


def test_a_former_admin_is_refused_inside_the_transaction(site: Site) -> None:
    boss = site.person("boss")
    stale = Caller(users.update_user(site.context, site.root, "boss", UserChange(Role.ADMIN)), "token", "")
    users.update_user(site.context, site.root, "boss", UserChange(boss.user.role))
    assert stale.user.is_admin
    for update in UPDATES[:2]:
        with pytest.raises(Forbidden):
            update(site, stale)
    assert projects.list_departments(site.context, site.root)[0].share == 1


def test_only_the_user_and_admins_see_a_user_quota(site: Site) -> None:
    ann, bob = site.person("ann"), site.person("bob")
    users.update_user(site.context, site.root, "ann", UserChange(quota={"running_gpus": 2}))
    assert users.get_user(site.context, ann, "ann").quota == Quota(running_gpus=2)
    assert users.get_user(site.context, site.root, "ann").quota == Quota(running_gpus=2)
    assert users.get_user(site.context, bob, "ann").quota == Quota()


def test_without_a_suitable_node_waiting_jobs_of_a_project_wait_and_new_ones_are_refused(site: Site) -> None:
    site.add_job(7)
    _, note = projects.update_project(site.context, site.root, "default", ProjectOrDepartmentChange(data_class=2))
    assert note is not None
    assert "No node accepts data of class 2" in note
    assert "waiting jobs of default wait until one does, and new ones are refused" in note
    with pytest.raises(Invalid, match="No node may run jobs of a project with data of class 2") as caught:
        submit_jobs(site.context, site.root, [JobRequest(JobSpec(("true",)))])
    assert "helio node set NAME --data-class 2" in (caught.value.hint or "")
    with site.context.store.read() as conn:
        waiting = get_job(conn, 7)
    assert waiting is not None
    assert waiting.state is JobState.PENDING
    update_node(site.context, site.root, "n1", NodeChange(data_class=2))
    _, note = projects.update_project(site.context, site.root, "default", ProjectOrDepartmentChange(data_class=2))
    assert note is None


def test_running_jobs_on_unsuitable_nodes_are_listed(site: Site) -> None:
    update_node(site.context, site.root, "n1", NodeChange(data_class=2))
    site.add_job(7, state=JobState.RUNNING, node="n1")
    site.add_job(8, state=JobState.RUNNING, node="n2")
    site.add_job(9)
    _, note = projects.update_project(site.context, site.root, "default", ProjectOrDepartmentChange(data_class=2))
    assert note is not None
    assert note.endswith("helio requeue 8")
    _, note = projects.update_project(site.context, site.root, "default", ProjectOrDepartmentChange(share=2))
    assert note is None
    _, note = update_node(site.context, site.root, "n1", NodeChange(data_class=0))
    assert note is not None
    assert note.endswith("helio requeue 7")
