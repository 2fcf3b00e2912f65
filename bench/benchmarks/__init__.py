"""What can be measured, by the name given on the command line."""

from collections.abc import Callable, Iterable

from bench.benchmarks import (
    environments,
    gpu,
    latency,
    memory,
    plan,
    proxy,
    replay,
    runtimes,
    samples,
    schedules,
    scrape,
    slurm,
    slurm_idle_cost,
    slurm_polling,
    startup,
    store,
    throughput,
    web,
)
from bench.measurements import Measurement
from bench.settings import Settings

__all__ = ["BENCHMARKS"]

BENCHMARKS: dict[str, Callable[[Settings], Iterable[Measurement]]] = {
    "throughput": throughput.measure,
    "latency": latency.measure,
    "gpu": gpu.measure,
    "memory": memory.measure,
    "store": store.measure,
    "plan": plan.measure,
    "samples": samples.measure,
    "schedules": schedules.measure,
    "scrape": scrape.measure,
    "startup": startup.measure,
    "runtimes": runtimes.measure,
    "environments": environments.measure,
    "replay": replay.measure,
    "web": web.measure,
    "proxy": proxy.measure,
    "slurm": slurm.measure,
    "slurm-observe": slurm_polling.measure,
    "slurm-month": slurm_idle_cost.measure,
}
