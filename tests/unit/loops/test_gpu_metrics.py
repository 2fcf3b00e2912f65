"""The usage of GPUs that Prometheus knows."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from heliostat.errors import EngineUnavailable
from heliostat.loops.gpu_metrics import GpuMetricsReader, add_gpu_metrics
from heliostat.models import Device, DeviceSample, JobState, Node, SampleBatch, TaskPlacement, UsageSample
from unit.services.site import a_job

NODE = Node("n1", 8, 1000, tuple(Device(f"n1:{n}", n, "A100", "A100", 0) for n in range(2)))
GPUS = {"n1:0": DeviceSample(70.0, 100.0)}
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
JOB = replace(
    a_job(7, NOW),
    state=JobState.RUNNING,
    attempt=1,
    places=(TaskPlacement("n1", ("n1:0",)), TaskPlacement("n1", ("n1:1",))),
)


def test_jobs_and_nodes_get_the_usage_of_their_gpus_beside_what_the_engine_knows() -> None:
    batch = add_gpu_metrics(SampleBatch({"7.1": UsageSample(2.0, 10.0)}), GPUS, [NODE], [JOB])
    devices = (DeviceSample(70.0, 100.0), DeviceSample())
    assert batch == SampleBatch({"7.1": UsageSample(2.0, 10.0, devices)}, {"n1": UsageSample(devices=devices)})


def test_what_prometheus_does_not_know_stays_as_it_was() -> None:
    batch = SampleBatch({"7.1": UsageSample(2.0, 10.0, (DeviceSample(1.0),))}, {"n1": UsageSample(1.0)})
    assert add_gpu_metrics(batch, {}, [NODE], [JOB]) == batch
    assert add_gpu_metrics(batch, {"n2:0": DeviceSample(1.0)}, [NODE], [JOB]) == batch


def test_nothing_is_known_of_a_node_with_slices() -> None:
    sliced = replace(NODE, devices=(NODE.devices[0], replace(NODE.devices[1], type="A100-1g.10gb")))
    assert add_gpu_metrics(SampleBatch(), GPUS, [sliced], [JOB]) == SampleBatch()


def test_a_job_that_has_not_started_has_no_usage() -> None:
    devices = (DeviceSample(70.0, 100.0), DeviceSample())
    nodes = {"n1": UsageSample(devices=devices)}
    starting = replace(JOB, state=JobState.STARTING)
    assert add_gpu_metrics(SampleBatch(nodes=nodes), GPUS, [NODE], [starting]) == SampleBatch(nodes=nodes)


def test_old_readings_are_not_used() -> None:
    now = [0.0]
    with answering(answer("5")) as url:
        reader = GpuMetricsReader(url, 10, lambda: now[0])
        assert reader.readings() == {}
        reader.refresh()
    assert reader.readings() == {"n1:0": DeviceSample(5.0)}
    with pytest.raises(EngineUnavailable, match="Prometheus does not answer"):
        reader.refresh()
    now[0] = 31.0
    assert reader.readings() == {}


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-1", "101", "1e30"])
def test_values_that_cannot_be_are_unknown(text: str) -> None:
    with answering(answer(text)) as url:
        reader = GpuMetricsReader(url, 10)
        reader.refresh()
    assert reader.readings() == {"n1:0": DeviceSample()}


def test_a_node_cannot_report_the_usage_of_gpus_of_another_node() -> None:
    with answering(answer("5", node="n2", UUID="n1:0")) as url:
        reader = GpuMetricsReader(url, 10)
        reader.refresh()
    assert reader.readings() == {"n2:0": DeviceSample(5.0)}


@pytest.mark.parametrize("body", [b"no json", b"[]", b'{"status": "error"}'])
def test_an_answer_that_is_not_of_prometheus_is_an_error(body: bytes) -> None:
    with answering(body) as url, pytest.raises(EngineUnavailable):
        GpuMetricsReader(url, 10).refresh()


def answer(value: str, **labels: str) -> bytes:
    labels = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "node": "n1", "gpu": "0"} | labels
    data = {"resultType": "vector", "result": [{"metric": labels, "value": [1, value]}]}
    return json.dumps({"status": "success", "data": data}).encode()


@contextmanager
def answering(body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
