"""The whole server on a machine with GPUs, as a fake driver library shows them."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.nvml.build import GPU_IS_LOST, FakeNvml, gpu, mig_slice, split_gpu, why_not
from integration.running_server import RunningServer, wait_for
from integration.unix_users import needs_root
from integration.web.surfing import Surfer

pytestmark = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
FIRST, SECOND = "GPU-1111", "GPU-2222"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    fake = FakeNvml.build(tmp_path_factory.mktemp("nvml"))
    fake.show(gpu(FIRST), gpu(SECOND))
    return fake


@pytest.fixture(scope="module")
def server(driver: FakeNvml) -> Iterator[RunningServer]:
    server = RunningServer('server.node_name = "here"\n', driver.environment())
    yield server
    server.remove()


@pytest.fixture(autouse=True)
def all_well(driver: FakeNvml, server: RunningServer) -> Iterator[None]:
    yield
    driver.show(gpu(FIRST), gpu(SECOND))
    let_it_look(server)
    assert not any(problems(server).values())


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that nobody has started through the queue."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def devices(server: RunningServer) -> dict[str, dict[str, Any]]:
    return {device["uuid"]: device for device in server.ask("GET", "/nodes/here").json["devices"]}


def problems(server: RunningServer) -> dict[str, str | None]:
    return {uuid: device["problem"] or device["used_outside"] for uuid, device in devices(server).items()}


def let_it_look(server: RunningServer) -> list[str]:
    """The server reads all GPUs right before it hands one out; which one that was."""
    handed: list[str] = server.run(command="true", gpus=1, cpus=1)["devices"]
    return handed


def test_gpus_are_found_and_handed_out_by_uuid(server: RunningServer) -> None:
    assert {uuid: device["type"] for uuid, device in devices(server).items()} == {FIRST: "A100", SECOND: "A100"}
    job = server.run(command="echo $CUDA_VISIBLE_DEVICES", gpus=2, gpu_type="a100")
    assert sorted(job["devices"]) == [FIRST, SECOND]
    assert server.output(job["id"]).strip() == ",".join(job["devices"])


def test_the_library_path_of_the_server_is_not_the_jobs(server: RunningServer) -> None:
    job = server.run(command="env")
    assert "LD_LIBRARY_PATH" not in server.output(job["id"])
    assert "FAKE_NVML_STATE" not in server.output(job["id"])


def test_a_gpu_used_outside_the_queue_is_not_handed_out_and_says_by_whom(
    driver: FakeNvml, server: RunningServer, stranger: subprocess.Popen[bytes]
) -> None:
    driver.show(gpu(FIRST, processes=f"{stranger.pid}:500"), gpu(SECOND))
    assert let_it_look(server) == [SECOND]
    said = str(problems(server)[FIRST])
    assert said.startswith("in use outside the queue by ")
    assert "sleep" in said
    assert "1000" not in said.replace(str(stranger.pid), "")  # not its arguments: they may be secret


def test_a_job_that_needs_the_gpu_waits_with_a_reason_and_starts_by_itself_when_it_is_free(
    driver: FakeNvml, server: RunningServer, stranger: subprocess.Popen[bytes]
) -> None:
    driver.show(gpu(FIRST, processes=f"{stranger.pid}:500"), gpu(SECOND))
    let_it_look(server)
    job_id = server.submit(command="echo $CUDA_VISIBLE_DEVICES", gpus=2)
    wait_for(lambda: "1 GPU" in server.show(job_id)["reason"], "a reason", lambda: server.show(job_id)["reason"])
    assert server.show(job_id)["state"] == "pending"
    driver.show(gpu(FIRST), gpu(SECOND))
    assert server.finished(job_id)["state"] == "completed"


def test_a_process_of_a_job_is_not_a_stranger(driver: FakeNvml, server: RunningServer) -> None:
    job_id = server.submit(command="echo $$; exec sleep 1000", gpus=1)
    pid = wait_for(lambda: server.output(job_id).strip(), "the job to run")
    held = server.show(job_id)["devices"][0]
    index = [FIRST, SECOND].index(held)
    facts = [gpu(FIRST), gpu(SECOND)]
    facts[index] = gpu(held, processes=f"{pid}:900", memory_used_mib=900)
    driver.show(*facts)
    let_it_look(server)
    assert devices(server)[held]["memory_used_mib"] == 900
    assert devices(server)[held]["used_outside"] is None
    assert devices(server)[held]["job_id"] == job_id
    assert "processes" not in devices(server)[held]
    server.ask("POST", f"/jobs/{job_id}/cancel")
    server.finished(job_id)


@needs_root  # others cannot tell the dead from the hidden
def test_a_gpu_goes_to_the_next_job_only_when_the_driver_shows_it_empty(
    driver: FakeNvml, server: RunningServer
) -> None:
    job_id = server.submit(command="echo $$; exec sleep 1000", gpus=1, cpus=1, memory=64)
    pid = wait_for(lambda: server.output(job_id).strip(), "the job to run")
    (held,) = server.show(job_id)["devices"]
    (other,) = {FIRST, SECOND} - {held}
    stuck = {FIRST: gpu(FIRST), SECOND: gpu(SECOND), held: gpu(held, processes=f"{pid}:900")}
    driver.show(*stuck.values())
    server.ask("POST", f"/jobs/{job_id}/cancel")
    assert server.finished(job_id)["state"] == "cancelled"
    assert problems(server)[held] == f"not free: process {pid} of an earlier job still uses it"
    jobs = [server.submit(command="true", gpus=1, cpus=1, memory=64) for _ in range(3)]
    assert [server.finished(job)["devices"] for job in jobs] == [[other]] * 3
    driver.show(gpu(FIRST), gpu(SECOND))
    assert sorted(server.run(command="true", gpus=2)["devices"]) == [FIRST, SECOND]


@needs_root  # others cannot tell the dead from the hidden
def test_a_gpu_that_is_not_empty_is_not_handed_out_by_the_next_server_either(
    driver: FakeNvml, server: RunningServer
) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    driver.show(gpu(FIRST, processes=f"{dead.pid}:900"), gpu(SECOND))
    server.stop()
    server.start()
    assert let_it_look(server) == [SECOND]
    assert problems(server)[FIRST] == f"not free: process {dead.pid} of an earlier job still uses it"


def test_a_job_on_a_gpu_that_it_was_not_given_keeps_it_from_others(
    driver: FakeNvml, server: RunningServer
) -> None:
    job_id = server.submit(command="echo $$; exec sleep 1000", cpus=1, memory=64)
    pid = wait_for(lambda: server.output(job_id).strip(), "the job to run")
    driver.show(gpu(FIRST, processes=f"{pid}:900"), gpu(SECOND))
    assert let_it_look(server) == [SECOND]
    assert problems(server)[FIRST] == f"not free: process {pid} of job {job_id} still uses it"
    server.ask("POST", f"/jobs/{job_id}/cancel")
    server.finished(job_id)


@pytest.mark.parametrize(
    ("facts", "word"), [({"ecc": 3}, "memory"), ({"error": GPU_IS_LOST}, "lost"), ({"remap_failed": 1}, "remap")]
)
def test_a_gpu_with_an_error_is_taken_out_until_it_passes_a_test(
    driver: FakeNvml, server: RunningServer, facts: dict[str, int], word: str
) -> None:
    driver.show(gpu(FIRST), gpu(SECOND, **facts))
    let_it_look(server)
    assert word in str(problems(server)[SECOND]).lower(), problems(server)
    failed = run_gpu_test(server)
    assert (failed["passed"], len(failed["steps"])) == (False, 1)
    driver.show(gpu(FIRST), gpu(SECOND))
    jobs = [server.submit(command="sleep 0.1", gpus=1, cpus=1, memory=64) for _ in range(3)]
    assert [server.finished(job_id)["devices"] for job_id in jobs] == [[FIRST]] * 3
    assert "helio node test-gpu here 1" in str(problems(server)[SECOND])
    passed = run_gpu_test(server)
    assert passed["passed"], passed
    assert "192 MiB" in passed["steps"][3]["detail"]
    assert sorted(server.run(command="true", gpus=2)["devices"]) == [FIRST, SECOND]


def test_a_job_that_fails_after_its_gpu_runs_again_elsewhere_without_a_retry(
    driver: FakeNvml, server: RunningServer
) -> None:
    job_id = server.submit(command="echo $$; test -e hit && exit 0; touch hit; exec sleep 1000", gpus=1, cpus=1)
    pid = int(wait_for(lambda: server.output(job_id).strip(), "the job to run"))
    (held,) = server.show(job_id)["devices"]
    facts = {FIRST: gpu(FIRST), SECOND: gpu(SECOND)}
    number = list(facts).index(held)
    driver.show(*{**facts, held: gpu(held, error=GPU_IS_LOST)}.values())
    os.kill(pid, signal.SIGABRT)
    job = server.finished(job_id)
    assert (job["state"], job["attempt"], job["retries"]) == ("completed", 2, 0)
    assert job["devices"] == [({FIRST, SECOND} - {held}).pop()]
    events = server.ask("GET", f"/events?job_id={job_id}").json["items"]
    (requeued,) = [event for event in events if event["kind"] == "device_failed"]
    assert requeued["detail"] == f"GPU {number} failed: it has fallen off the bus"
    driver.show(*facts.values())
    server.stop()
    server.start()
    assert "failed: it has fallen off the bus" in str(problems(server)[held])
    resumed = server.ask("POST", f"/nodes/here/gpus/{number}/resume", {"reason": "new slot"})
    assert resumed.status == 200
    history = server.ask("GET", "/nodes/here/gpus").json["items"]
    assert [card["errors"][0]["kind"] for card in history if card["uuid"] == held] == ["lost"]


def test_a_gpu_whose_memory_loses_a_bit_fails_the_test(driver: FakeNvml, server: RunningServer) -> None:
    driver.show(gpu(FIRST), gpu(SECOND, error=GPU_IS_LOST))
    let_it_look(server)
    driver.show(gpu(FIRST), gpu(SECOND), cuda_flip=1)
    failed = run_gpu_test(server)
    assert not failed["passed"]
    assert failed["steps"][-1]["detail"] == "3 of 3 blocks of 64 MiB have other contents than were written"
    driver.show(gpu(FIRST), gpu(SECOND), cuda_error=700)
    assert run_gpu_test(server)["steps"][-1]["detail"] == "cuInit failed with CUDA error 700"
    driver.show(gpu(FIRST), gpu(SECOND))
    assert run_gpu_test(server)["passed"]


def test_the_page_of_the_node_shows_the_failure_and_tests_the_gpu(driver: FakeNvml, server: RunningServer) -> None:
    driver.show(gpu(FIRST), gpu(SECOND, error=GPU_IS_LOST))
    let_it_look(server)
    admin = Surfer(server).by_link()
    page = admin.get("/cluster/here")
    assert "History of the GPUs" in page.text
    assert "it has fallen off the bus; reboot the node" in page.text

    def send(verb: str, **fields: str) -> str:
        form = [("csrf", admin.get("/cluster/here").form_token), *fields.items()]
        assert admin.post(f"/cluster/here/gpus/1/{verb}", form).status == 303
        return admin.get("/cluster/here").text

    assert "GPU 1 failed the test (the driver reports no error: lost" in send("test")
    driver.show(gpu(FIRST), gpu(SECOND))
    let_it_look(server)
    assert "Jobs use GPU 1 again." in send("resume", **{"reason-1": "new slot"})
    assert "GPU 1 failed</h2>" not in admin.get("/cluster/here").text


def test_a_gpu_in_use_cannot_be_tested(server: RunningServer) -> None:
    refused = server.ask("POST", "/nodes/here/gpus/0/test")
    assert (refused.status, refused.error["message"]) == (409, "GPU 0 of here is not taken out.")
    assert server.ask("POST", "/nodes/here/gpus/9/test").status == 404


def run_gpu_test(server: RunningServer) -> dict[str, Any]:
    result: dict[str, Any] = server.ask("POST", "/nodes/here/gpus/1/test").json
    return result


def test_a_gpu_that_disappears_stays_listed_with_its_problem(driver: FakeNvml, server: RunningServer) -> None:
    driver.show(gpu(FIRST))
    assert let_it_look(server) == [FIRST]
    assert "no longer lists" in str(problems(server)[SECOND])


@pytest.fixture
def split(driver: FakeNvml, server: RunningServer) -> None:
    """The second GPU is split into two slices while the server runs."""
    driver.show(gpu(FIRST), split_gpu(SECOND, {0: mig_slice("MIG-1"), 1: mig_slice("MIG-2")}))
    assert let_it_look(server) == [FIRST]


SLICE = {"gpus": 1, "gpu_type": "a100-1g.10gb", "cpus": 1, "memory": 64}


@pytest.mark.usefixtures("split")
def test_mig_slices_appear_and_are_only_for_jobs_that_name_them(server: RunningServer) -> None:
    found = devices(server)
    assert list(found) == [FIRST, "MIG-1", "MIG-2"]
    assert [found[uuid]["number"] for uuid in found] == ["0", "1:0", "1:1"]
    assert [found[uuid]["card_fraction"] for uuid in found] == [1, 0.1429, 0.1429]
    assert not any(problems(server).values())
    job = server.run(command="echo $CUDA_VISIBLE_DEVICES $NVIDIA_VISIBLE_DEVICES", **SLICE)
    (uuid,) = job["devices"]
    assert uuid in ("MIG-1", "MIG-2")
    assert server.output(job["id"]).split() == [uuid, uuid]
    assert server.run(command="true", gpus=1, cpus=1, memory=64)["devices"] == [FIRST]
    refused = server.ask("POST", "/jobs", {"command": ["true"], "gpus": 2})
    assert refused.error["message"] == "No node has 2 GPUs."
    assert "--gpu-type A100-1g.10gb" in refused.error["hint"]


def test_a_process_on_a_slice_keeps_only_that_slice_from_jobs(
    driver: FakeNvml, server: RunningServer, split: None, stranger: subprocess.Popen[bytes]
) -> None:
    slices = {0: mig_slice("MIG-1", processes=f"{stranger.pid}:500"), 1: mig_slice("MIG-2")}
    driver.show(gpu(FIRST), split_gpu(SECOND, slices))
    jobs = [server.submit(command="true", **SLICE) for _ in range(3)]
    assert [server.finished(job_id)["devices"] for job_id in jobs] == [["MIG-2"]] * 3
    assert "in use outside the queue" in str(problems(server)["MIG-1"])


def test_slices_disappear_when_the_gpu_is_whole_again(
    driver: FakeNvml, server: RunningServer, split: None
) -> None:
    driver.show(gpu(FIRST), gpu(SECOND))
    let_it_look(server)
    assert sorted(server.run(command="true", gpus=2)["devices"]) == [FIRST, SECOND]
    assert list(devices(server)) == [FIRST, SECOND]


def test_the_fake_is_no_part_of_this_process() -> None:
    assert "FAKE_NVML_STATE" not in os.environ
    assert not any("libnvidia-ml" in line for line in Path("/proc/self/maps").read_text().splitlines())
