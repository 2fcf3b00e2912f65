"""Metrics of nodes and GPUs, readiness, and targets for Prometheus."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliostat.config import Home, Settings
from heliostat.config.load import load_settings
from heliostat.config.sections import MonitoringSettings
from heliostat.errors import HeliostatError, StoreUnavailable
from heliostat.metrics import MetricFamily
from heliostat.models import Job, JobState, Node, NodeState, PlacementRequest, Resources, TaskPlacement
from heliostat.services.context import Context
from heliostat.services.monitoring import families
from heliostat.services.monitoring.cluster_metrics import collect_cluster
from heliostat.services.monitoring.health import find_readiness_problems
from heliostat.services.monitoring.targets import list_targets
from heliostat.services.monitoring_state import MonitoringState, TimedCache
from heliostat.services.pause_state import PauseState
from unit.scheduling.builders import a_job, a_node, a_running_job
from unit.services.site import Site

DOCS = Path(__file__).parents[3] / "docs" / "monitoring.md"


def test_every_metric_is_documented_and_no_other() -> None:
    known = [family for family in vars(families).values() if isinstance(family, MetricFamily)]
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| `heliostat_")]
    assert rows == [_row(family) for family in known]


def _row(family: MetricFamily) -> str:
    labels = f"{{{','.join(family.labels)}}}" if family.labels else ""
    return f"| `{family.name}{labels}` | {family.type} | {family.help} |"


def collected(nodes: list[Node], *jobs: Job) -> dict[str, float]:
    return {
        family.name + labels: value
        for family, samples in collect_cluster(nodes, jobs)
        for labels, value in samples
    }


def test_resources_are_counted_on_the_node_of_each_task() -> None:
    places = (TaskPlacement("a", ("a-0", "a-1")), TaskPlacement("b", ("b-0", "b-1")))
    wide = a_running_job(
        7, "a", Resources(2, 100, 2), places=places, devices=("a-0", "a-1", "b-0", "b-1"),
        placement=PlacementRequest(tasks=2), project="vision",
    )  # fmt: skip
    found = collected([a_node("a", gpus=4), a_node("b", gpus=4)], wide)
    assert [found[f'heliostat_node_cpus_allocated{{node="{name}"}}'] for name in "ab"] == [2, 2]
    assert found['heliostat_node_memory_allocated_bytes{node="b"}'] == 100 * 2**20
    assert found['heliostat_project_allocated_gpus{project="vision"}'] == 4
    assert found['heliostat_gpu_allocated{node="b",uuid="b-1"}'] == 1
    assert found['heliostat_gpu_allocated{node="b",uuid="b-2"}'] == 0
    assert found['heliostat_job_gpu_info{job="7",uuid="b-1",project="vision"}'] == 1


def test_a_shared_gpu_is_allocated_in_part() -> None:
    halves = [a_running_job(n, "a", Resources(1, 100, 0.25), devices=("a-0",)) for n in (1, 2)]
    found = collected([a_node("a", gpus=1)], *halves)
    assert found['heliostat_gpu_allocated{node="a",uuid="a-0"}'] == 0.5
    assert sum(name.startswith("heliostat_job_gpu_info") for name in found) == 2


def test_a_job_that_does_not_run_yet_has_no_series() -> None:
    starting = a_job(1, Resources(1, 100, 1), state=JobState.STARTING, node="a", devices=("a-0",))
    found = collected([a_node("a", gpus=1)], starting)
    assert not any(name.startswith("heliostat_job_gpu_info") for name in found)
    assert found['heliostat_gpu_allocated{node="a",uuid="a-0"}'] == 1


def test_unknown_values_have_no_series() -> None:
    node = a_node("a", gpus=2)
    broken = replace(node.devices[0], problem="lost", fault="xid_79")
    measured = replace(node.devices[1], utilisation=40, memory_used_mib=3, temperature=50, power_watts=99.5)
    found = collected([replace(node, devices=(broken, measured), state=NodeState.DOWN)])
    assert found['heliostat_gpu_usable{node="a",uuid="a-0"}'] == 0
    assert found['heliostat_gpu_fault{node="a",uuid="a-0",kind="xid_79"}'] == 1
    assert sum(name.startswith("heliostat_gpu_fault") for name in found) == 1
    assert found['heliostat_gpu_utilization_ratio{node="a",uuid="a-1"}'] == 0.4
    assert found['heliostat_gpu_memory_used_bytes{node="a",uuid="a-1"}'] == 3 * 2**20
    assert found['heliostat_gpu_power_watts{node="a",uuid="a-1"}'] == 99.5
    assert not any("ratio" in name or "watts" in name or "celsius" in name for name in found if "a-0" in name)
    assert found['heliostat_node_up{node="a"}'] == 0
    assert found['heliostat_node_state{node="a",state="down"}'] == 1
    assert found['heliostat_node_state{node="a",state="up"}'] == 0


def test_exporters_run_on_every_node_and_those_of_gpus_where_there_are_some(site: Site) -> None:
    found = [(group["targets"], group["labels"]) for group in list_targets(site.context)]
    assert found[:2] == [
        (["n1:9100"], {"job": "node-exporter", "node": "n1"}),
        (["n1:9400"], {"job": "dcgm-exporter", "node": "n1"}),
    ]
    assert found[-1] == (["n3:9100"], {"job": "node-exporter", "node": "n3"})


def test_an_exporter_without_a_port_is_no_target(site: Site) -> None:
    monitoring = MonitoringSettings(node_exporter_port=0, dcgm_exporter_port=9401)
    parts = cast(Any, site.context)
    parts.settings = replace(parts.settings, monitoring=monitoring)
    assert [group["targets"] for group in list_targets(site.context)] == [["n1:9401"], ["n2:9401"]]


@pytest.mark.parametrize("address", ["127.0.0.1:9480", "[::1]:9480", "gpu1:0", "0.0.0.0:65535"])
def test_an_address_has_a_host_and_a_port(tmp_path: Path, address: str) -> None:
    assert settings_with(tmp_path, address).monitoring.metrics_address == address


@pytest.mark.parametrize(
    "address", ["9480", "127.0.0.1", "127.0.0.1:", "::1:9480", "127.0.0.1:99999", "1.2.3:1", ":1"]
)
def test_anything_else_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(HeliostatError, match="metrics_address"):
        settings_with(tmp_path, address)


def settings_with(folder: Path, address: str) -> Settings:
    (folder / "cluster.toml").write_text(f'[monitoring]\nmetrics_address = "{address}"\n')
    return load_settings(Home(folder))


def a_context(site: Site, **parts: object) -> Context:
    known: dict[str, object] = {
        "controller": SimpleNamespace(is_running=True),
        "store": site.context.store,
        "engine": site.machines,
        "pause": PauseState(),
        "monitoring": MonitoringState(),
    }
    return cast(Context, SimpleNamespace(**{**known, **parts}))


def test_a_server_that_can_write_and_runs_is_ready(site: Site) -> None:
    assert find_readiness_problems(a_context(site)) == []


def test_a_controller_that_has_ended_is_a_problem(site: Site) -> None:
    context = a_context(site, controller=SimpleNamespace(is_running=False))
    assert find_readiness_problems(context) == ["The thread controller has ended."]


def test_a_database_that_cannot_be_written_is_a_problem(site: Site) -> None:
    writes = []

    def check_writable(seconds: float) -> None:
        writes.append(seconds)
        raise StoreUnavailable("The database cannot be written: disk full.")

    context = a_context(site, store=SimpleNamespace(is_running=True, check_writable=check_writable))
    for _ in range(2):
        assert find_readiness_problems(context) == ["The database cannot be written: disk full."]
    assert len(writes) == 1  # however many ask


def test_the_check_writes_to_the_disk_and_changes_nothing(site: Site) -> None:
    wal = site.context.settings.home.database.with_name("heliostat.db-wal")
    before = wal.stat().st_mtime_ns
    site.context.store.check_writable(60)
    assert wal.stat().st_mtime_ns > before


def test_a_value_is_loaded_again_when_it_is_old() -> None:
    clock = SimpleNamespace(at=0.0)
    cache: TimedCache[float] = TimedCache(5.0, lambda: clock.at)
    seen = []
    for clock.at in (0.0, 4.9, 5.0):
        seen.append(cache.get_or_load(lambda: clock.at))
    assert seen == [0.0, 0.0, 5.0]


def test_while_one_caller_loads_the_others_get_the_old_value() -> None:
    clock = SimpleNamespace(at=0.0)
    cache: TimedCache[str] = TimedCache(5.0, lambda: clock.at)
    assert cache.get_or_load(lambda: "old") == "old"
    clock.at = 5.0
    assert cache.get_or_load(lambda: "new, and not " + cache.get_or_load(lambda: "never")) == "new, and not old"


def test_a_load_that_fails_is_tried_again() -> None:
    cache: TimedCache[str] = TimedCache(5.0)
    with pytest.raises(ZeroDivisionError):
        cache.get_or_load(lambda: str(1 / 0))
    assert cache.get_or_load(lambda: "fine") == "fine"
