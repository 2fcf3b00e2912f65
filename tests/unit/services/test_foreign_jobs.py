from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliostat.models import ForeignJob, TaskPlacement
from heliostat.services.cluster.foreign_jobs import list_foreign_jobs
from heliostat.services.cluster.overview import DeviceCondition, get_cluster_overview, get_node_status
from heliostat.store.samples import SampleStore
from unit.services.site import Machines, Site


@dataclass
class SharedMachines(Machines):
    jobs: list[ForeignJob] = field(default_factory=list)

    wait_reason = final_usage = acknowledge_usage = outage = forecast_start = lambda *_: None

    def foreign_jobs(self) -> Sequence[ForeignJob]:
        return self.jobs


@pytest.fixture(autouse=True)
def shared(site: Site, tmp_path: Path) -> SharedMachines:
    machines = SharedMachines(site.machines.found)
    parts = cast(Any, site.context)
    parts.engine = machines
    parts.samples = SampleStore(tmp_path / "samples.db")
    parts.controller = SimpleNamespace(active_jobs_and_pending_count=lambda: ([], 0))
    return machines


def a_job(site: Site, number: int, **fields: Any) -> ForeignJob:
    job = ForeignJob(
        id=f"slurm:{number}",
        user="ann",
        name="secret plan",
        state="running",
        reason=None,
        cpus=4,
        memory_mib=1000,
        gpus=4,
        tasks=1,
        places=(TaskPlacement("n1", ("n1-0", "n1-1")), TaskPlacement("n2", ("n2-3",))),
        submitted_at=site.clock.at,
        started_at=site.clock.at,
        time_limit_seconds=None,
        cancel_command=f"scancel {number}",
    )
    return replace(job, **fields)


def test_foreign_jobs_count_as_allocated_resources(site: Site, shared: SharedMachines) -> None:
    before = get_cluster_overview(site.context).free_gpus
    shared.jobs = [a_job(site, 7)]
    seen = get_node_status(site.context, site.root, "n1")
    assert (seen.allocated_gpus, seen.allocated_cpus, seen.allocated_memory_mib) == (2, 2, 500)
    assert [one.condition for one in seen.devices[:3]] == [
        DeviceCondition.FOREIGN,
        DeviceCondition.FOREIGN,
        DeviceCondition.FREE,
    ]
    assert (
        seen.devices[0].device.used_outside == "used by slurm:7 of ann, which was not submitted through Heliostat"
    )
    assert get_node_status(site.context, site.root, "n2").devices[3].condition is DeviceCondition.FOREIGN
    assert get_cluster_overview(site.context).free_gpus == before - 3


def test_running_foreign_jobs_come_first_and_can_be_filtered_by_node(site: Site, shared: SharedMachines) -> None:
    waiting = a_job(site, 1, state="pending", places=(), started_at=None)
    shared.jobs = [waiting, a_job(site, 2), a_job(site, 3, places=(TaskPlacement("n3", ()),))]
    found = [job.id for job in list_foreign_jobs(site.context, site.root)]
    assert found == ["slurm:2", "slurm:3", "slurm:1"]
    assert [job.id for job in list_foreign_jobs(site.context, site.root, "n3")] == ["slurm:3"]


def test_names_and_reasons_are_for_the_owner_and_for_admins(site: Site, shared: SharedMachines) -> None:
    shared.jobs = [a_job(site, 1, reason="waits for room")]
    ann, bert = site.person("ann"), site.person("bert")
    ann = replace(ann, user=replace(ann.user, unix_user="ann"))
    told = [list_foreign_jobs(site.context, caller)[0] for caller in (site.root, ann, bert)]
    assert [(job.name, job.reason) for job in told] == [
        ("secret plan", "waits for room"),
        ("secret plan", "waits for room"),
        (None, None),
    ]


def test_an_engine_without_its_own_queue_has_no_foreign_jobs(site: Site) -> None:
    cast(Any, site.context).engine = site.machines
    assert list_foreign_jobs(site.context, site.root) == ()
