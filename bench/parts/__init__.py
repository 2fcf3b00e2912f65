"""What can be measured, by the name given on the command line."""

from collections.abc import Callable, Iterable

from bench.figures import Figure
from bench.parts import (
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
    slurm,
    slurm_month,
    slurm_observe,
    startup,
    store,
    throughput,
    web,
)
from bench.settings import Settings

__all__ = ["PARTS"]

PARTS: dict[str, Callable[[Settings], Iterable[Figure]]] = {
    "throughput": throughput.measure,
    "latency": latency.measure,
    "gpu": gpu.measure,
    "memory": memory.measure,
    "store": store.measure,
    "plan": plan.measure,
    "samples": samples.measure,
    "schedules": schedules.measure,
    "startup": startup.measure,
    "runtimes": runtimes.measure,
    "environments": environments.measure,
    "replay": replay.measure,
    "web": web.measure,
    "proxy": proxy.measure,
    "slurm": slurm.measure,
    "slurm-observe": slurm_observe.measure,
    "slurm-month": slurm_month.measure,
}
