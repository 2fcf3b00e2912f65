"""What a real job uses is what its stats say."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.nvml.build import FakeNvml, gpu, mig_slice, split_gpu, why_not
from heliostat.config import Home, ServerSettings, Settings
from heliostat.engines.local import engine as local
from heliostat.engines.local.cgroups import CgroupsUnavailable
from heliostat.engines.local.usage_sampler import UsageSampler
from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root

BURN = "held = b'x' * (200 << 20)\nwhile True: pass"
SETTINGS = 'server.node_name = "here"\nmonitoring.sample_seconds = 1\n'


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer(SETTINGS)
    yield server
    server.remove()


def stats(server: RunningServer, job_id: int) -> dict[str, Any]:
    found: dict[str, Any] = server.ask("GET", f"/jobs/{job_id}/stats").json
    return found


def series(found: dict[str, Any], name: str) -> list[float]:
    [values] = [one["mean"] for one in found["series"] if one["name"] == name]
    return [value for value in values if value is not None]


def test_a_job_that_keeps_one_core_busy_and_holds_200_mib_is_seen_as_that(server: RunningServer) -> None:
    job_id = server.submit(command=[sys.executable, "-c", BURN], cpus=1, memory="1G")

    def seen() -> dict[str, Any] | None:
        found = stats(server, job_id)
        summary = found["summary"]
        return found if summary["sampled_seconds"] >= 4 and (summary["cpus"]["peak"] or 0) > 0.2 else None

    found = wait_for(seen, "samples of a busy job")
    server.ask("POST", f"/jobs/{job_id}/cancel")
    assert 200 <= found["summary"]["memory_mib"]["peak"] <= 300
    assert 0.1 <= found["summary"]["cpus"]["mean"] <= 1.2  # this machine may have other things to do
    assert max(series(found, "memory")) == pytest.approx(found["summary"]["memory_mib"]["peak"])
    node = server.ask("GET", "/nodes/here/stats").json
    assert max(series(node, "cpu")) > 0.2
    assert max(series(node, "memory")) > 200
    cluster = server.ask("GET", "/cluster/stats?span=week").json
    assert max(series(cluster, "running")) > 0
    assert max(series(cluster, "cpus_allocated")) > 0


def test_stats_go_on_where_they_were_when_the_server_is_started_again(server: RunningServer) -> None:
    job_id = server.submit(command="sleep 600", cpus=1)
    wait_for(lambda: stats(server, job_id)["summary"]["sampled_seconds"] >= 2, "a few samples")
    server.stop()
    server.start()
    before = stats(server, job_id)["summary"]["sampled_seconds"]
    assert before >= 2
    wait_for(lambda: stats(server, job_id)["summary"]["sampled_seconds"] > before, "more samples")
    server.ask("POST", f"/jobs/{job_id}/cancel")


def test_a_broken_file_of_samples_is_begun_anew_and_harms_nothing(server: RunningServer) -> None:
    server.stop()
    (server.home / "samples.db").write_bytes(b"broken" * 1000)
    for suffix in ("-wal", "-shm"):
        (server.home / f"samples.db{suffix}").unlink(missing_ok=True)
    server.start()
    job_id = server.submit(command="sleep 600", cpus=1)
    wait_for(lambda: stats(server, job_id)["summary"]["sampled_seconds"] >= 1, "a sample")
    server.ask("POST", f"/jobs/{job_id}/cancel")
    assert "samples_file_replaced" in server.log


@needs_root
def test_stats_of_a_job_are_for_those_who_may_read_its_log(server: RunningServer, ann: Person) -> None:
    job_id = server.run(command="true")["id"]
    for path in ("stats", "logs"):
        answer = server.ask("GET", f"/jobs/{job_id}/{path}", uid=ann.uid)
        assert (answer.status, answer.error["code"]) == (403, "forbidden")
    for path in ("/cluster/stats", "/nodes/here/stats"):
        assert server.ask("GET", path, uid=ann.uid).status == 200
    assert server.ask("GET", "/cluster/stats", tcp=True).status == 401


@pytest.mark.parametrize("path", ["/cluster/stats?span=decade", "/nodes/here/stats?span=", "/jobs/0/stats"])
def test_a_question_that_makes_no_sense_is_refused(server: RunningServer, path: str) -> None:
    answer = server.ask("GET", path)
    assert (answer.status, answer.error["code"]) == (422, "invalid")


@pytest.mark.parametrize("path", ["/nodes/nowhere/stats", "/jobs/999999/stats"])
def test_what_does_not_exist_has_no_stats(server: RunningServer, path: str) -> None:
    answer = server.ask("GET", path)
    assert (answer.status, answer.error["code"]) == (404, "not_found")
    assert answer.error["hint"]


@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
def test_gpus_are_sampled_for_the_job_that_holds_them(tmp_path: Path) -> None:
    driver = FakeNvml.build(tmp_path)
    busy = gpu("GPU-1", utilisation=87, memory_used_mib=30000)
    driver.show(busy, gpu("GPU-2"))
    with contextlib.closing(_Removing(RunningServer(SETTINGS, driver.environment()))) as holder:
        server = holder.server
        job_id = server.submit(command="sleep 600", cpus=1, gpus=2)
        found = wait_for(lambda: _with_devices(stats(server, job_id)), "samples of GPUs")
        first, second = found["summary"]["devices"]
        assert (first["utilisation"]["peak"], second["utilisation"]["peak"]) == (87, 0)
        assert first["memory_mib"]["last"] == pytest.approx(30000, rel=0.001)
        assert [one["name"] for one in found["series"]][2:4] == ["gpu0_utilisation", "gpu0_memory"]


@pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
def test_of_a_mig_slice_only_the_memory_is_sampled(tmp_path: Path) -> None:
    driver = FakeNvml.build(tmp_path)
    driver.show(split_gpu("GPU-1", {3: mig_slice("MIG-1", memory_used_mib=7000)}))
    with contextlib.closing(_Removing(RunningServer(SETTINGS, driver.environment()))) as holder:
        server = holder.server
        job_id = server.submit(command="sleep 600", cpus=1, gpus=1, gpu_type="A100-1g.10gb")
        found = wait_for(lambda: _with_devices(stats(server, job_id)), "samples of the slice")
        (device,) = found["summary"]["devices"]
        assert device["utilisation"] == {"mean": None, "peak": None, "last": None}
        assert device["memory_mib"]["last"] == pytest.approx(7000, rel=0.001)
        assert found["device_memory_mib"] == [9728]


def test_a_machine_without_cgroups_counts_by_process_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    for made in (home.jobs, home.attempts):
        made.mkdir()
    monkeypatch.setattr(local, "find_cgroups", lambda instance: CgroupsUnavailable("none here"))
    engine = local.LocalEngine(Settings(home, server=ServerSettings(simulate_gpus="1xT4")))
    worker = subprocess.Popen(["sh", "-c", f"'{sys.executable}' -c \"{BURN}\"; :"], start_new_session=True)
    try:
        running = _as_running(worker.pid)
        reader = UsageSampler(engine._devices)

        def seen() -> bool:
            reading = reader.read("here", [running]).attempts["7.1"]
            return (reading.memory_mib or 0) >= 200 and (reading.cpus or 0) > 0.2

        wait_for(seen, "the processes below the wrapper")
    finally:
        os.killpg(worker.pid, 9)
        worker.wait()
        engine.close()


class _Removing:
    def __init__(self, server: RunningServer) -> None:
        self.server = server

    def close(self) -> None:
        self.server.remove()


def _with_devices(found: dict[str, Any]) -> dict[str, Any] | None:
    devices = found["summary"]["devices"]
    return found if devices and devices[0]["memory_mib"]["mean"] is not None else None


def _as_running(pid: int) -> Any:
    from types import SimpleNamespace

    from heliostat.engines.local.cgroup_fallback import FallbackCgroup
    from heliostat.engines.local.claim_files import WrapperClaim

    attempt = SimpleNamespace(id="7.1", devices=())
    group = FallbackCgroup("none", "7.1")
    return SimpleNamespace(
        attempt=attempt, claim=WrapperClaim(pid), started_monotonic=time.monotonic(), group=group
    )
