from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliostat.models import Device, Job, JobState, Node, NodeState, PlacementRequest, Reservation, Resources
from heliostat.models.samples import node_subject
from heliostat.services.cluster.nodes import drain_node
from heliostat.services.cluster.overview import (
    DeviceCondition,
    demand_by_project,
    get_cluster_overview,
    get_node_status,
    list_node_statuses,
)
from heliostat.services.cluster.reservations import create_reservation
from heliostat.store.samples import SampleStore
from unit.services.site import Site


@pytest.fixture(autouse=True)
def samples(site: Site, tmp_path: Path) -> SampleStore:
    made = SampleStore(tmp_path / "samples.db")
    cast(Any, site.context).samples = made
    return made


def running(site: Site, number: int, node: str, *devices: str, **fields: Any) -> Job:
    begun = site.clock.at - timedelta(hours=1)
    fields = {
        "state": JobState.RUNNING,
        "node": node,
        "devices": devices,
        "started_at": begun,
        "attempt": 1,
    } | fields
    return site.add_job(number, **fields)


def used(site: Site, samples: SampleStore, node: str, *percents: float) -> None:
    """For the last ten minutes."""
    row = [1.0, 100.0, *(value for percent in percents for value in (percent, 10.0))]
    for step in range(60, 0, -1):
        samples.add(site.clock.at.timestamp() - 10 * step, {node_subject(node): row})


def conditions(site: Site, node: str = "n1") -> list[DeviceCondition]:
    return [one.condition for one in get_node_status(site.context, site.root, node).devices]


def change(site: Site, **fields: Any) -> None:
    """The first device of n1."""
    node = site.machines.found[0]
    site.machines.found[0] = replace(node, devices=(replace(node.devices[0], **fields), *node.devices[1:]))


def test_devices_are_free_busy_or_idle(site: Site, samples: SampleStore) -> None:
    running(site, 1, "n1", "n1-0", "n1-1")
    used(site, samples, "n1", 80.0, 1.0, 0.0, 0.0)
    assert conditions(site) == [
        DeviceCondition.BUSY,
        DeviceCondition.IDLE,
        DeviceCondition.FREE,
        DeviceCondition.FREE,
    ]


def test_a_device_is_not_idle_after_a_recent_start_or_without_samples(site: Site, samples: SampleStore) -> None:
    running(site, 1, "n2", "n2-0")
    assert conditions(site, "n2")[0] is DeviceCondition.BUSY
    running(site, 2, "n1", "n1-0", started_at=site.clock.at - timedelta(minutes=9))
    used(site, samples, "n1", 0.0)
    assert conditions(site)[0] is DeviceCondition.BUSY


def test_faulty_and_foreign_have_priority_over_other_conditions(site: Site) -> None:
    running(site, 1, "n1", "n1-0")
    change(site, used_outside="process 7 of bob")
    assert conditions(site)[0] is DeviceCondition.FOREIGN
    change(site, problem="fell off the bus")
    assert conditions(site)[0] is DeviceCondition.FAULTY
    site.machines.found[1] = replace(site.machines.found[1], state=NodeState.DOWN)
    assert set(conditions(site, "n2")) == {DeviceCondition.FAULTY}


def test_devices_of_running_jobs_on_a_drained_node_are_busy(site: Site) -> None:
    running(site, 1, "n1", "n1-0")
    drain_node(site.context, site.root, "n1", "new fan")
    assert conditions(site) == [DeviceCondition.BUSY, *[DeviceCondition.DRAINED] * 3]


def test_other_users_see_the_owner_but_not_the_name_of_a_job(site: Site) -> None:
    site.person("ann")
    bob = site.person("bob")
    running(site, 1, "n1", "n1-0", user="ann", name="secret-plan", time_limit_seconds=7200)
    (tenant,) = get_node_status(site.context, bob, "n1").jobs
    assert (tenant.user, tenant.name, tenant.inspectable) == ("ann", None, False)
    assert tenant.ends_at == site.clock.at + timedelta(hours=1)
    (tenant,) = get_node_status(site.context, site.root, "n1").jobs
    assert tenant.name == "secret-plan"


def test_a_gang_counts_on_each_node_with_its_tasks_on_that_node(site: Site) -> None:
    from heliostat.models import TaskPlacement

    places = (TaskPlacement("n1", ("n1-0",)), TaskPlacement("n1", ("n1-1",)), TaskPlacement("n2", ("n2-0",)))
    wanted = Resources(cpus=2, memory_mib=100, gpus=1)
    running(site, 1, "n1", places=places, placement=PlacementRequest(tasks=3), resources=wanted)
    first, second, third = list_node_statuses(site.context, site.root)
    assert (first.allocated_gpus, first.allocated_cpus, first.allocated_memory_mib) == (2, 4, 200)
    assert (second.allocated_gpus, second.allocated_cpus) == (1, 2)
    assert third.jobs == ()


def test_reservations_of_the_next_week_are_listed(site: Site) -> None:
    soon = site.clock.at + timedelta(days=1)
    wish = Reservation("disk", ("n1",), soon, soon + timedelta(hours=4), reason="new disk")
    create_reservation(site.context, site.root, wish)
    later = replace(wish, name="far", starts_at=soon + timedelta(days=8), ends_at=soon + timedelta(days=9))
    create_reservation(site.context, site.root, later)
    first, second, _ = list_node_statuses(site.context, site.root)
    assert [(one.name, one.project, one.is_active) for one in first.reservations] == [("disk", None, False)]
    assert second.reservations == ()
    site.clock.turn(days=1, hours=1)
    assert get_node_status(site.context, site.root, "n1").reservations[0].is_active


def test_demand_counts_running_and_pending_but_not_held_jobs(site: Site) -> None:
    site.project("vision")
    running(site, 1, "n1", "n1-0")
    site.add_job(2, project="vision", resources=Resources(gpus=2), placement=PlacementRequest(tasks=3))
    site.add_job(3, project="vision", state=JobState.HELD)
    site.add_job(4, resources=Resources(gpus=0))
    found = [
        (one.project, one.running_gpus, one.pending_gpus, one.running_jobs, one.pending_jobs)
        for one in demand_by_project(site.context)
    ]
    assert found == [("vision", 0, 6, 0, 1), ("default", 1, 0, 1, 1)]


def test_the_overview_counts_only_available_gpus_as_free(site: Site) -> None:
    job = running(site, 1, "n1", "n1-0")
    cast(Any, site.context).controller = SimpleNamespace(active_jobs_and_pending_count=lambda: ([job], 5))
    change(site, problem="broken")
    site.machines.found.append(Node("n4", 8, 1024, (Device("x", 0, "T4", "T4", 1),), state=NodeState.DOWN))
    drain_node(site.context, site.root, "n2", "new fan")
    seen = get_cluster_overview(site.context)
    assert (seen.gpus, seen.free_gpus, seen.pending_jobs, seen.running_jobs) == (8, 3, 5, 1)
