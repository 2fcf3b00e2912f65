"""Run in a job, by a Python that has Dask: a cluster that computes, grows, shrinks and is gone. Prints JSON."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any
from urllib.request import Request, urlopen

from distributed import Client as DaskClient

from heliostat.client import Client
from heliostat.integrations.dask import HeliostatCluster


def square(number: int) -> tuple[int, str]:
    return number * number, os.environ["HELIOSTAT_JOB_ID"]


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def through_the_proxy(ours: Client, cluster: HeliostatCluster) -> str:
    port = cluster.scheduler_info["services"]["dashboard"]
    key = ours.jobs.create_port_key(int(os.environ["HELIOSTAT_JOB_ID"]), port)["key"]
    address = cluster.dashboard_link.removesuffix("status") + "health"
    asked = Request(address, headers={"Authorization": f"Bearer {key}"})
    with urlopen(asked, timeout=60) as answer:
        return answer.read().decode()


def main() -> None:
    ours = Client(home=sys.argv[1])
    told: dict[str, Any] = {}
    with HeliostatCluster(client=ours, cpus=1, memory="512M", scheduler={"host": "127.0.0.1"}) as cluster:
        cluster.scale(2)
        with DaskClient(cluster) as dask:
            dask.wait_for_workers(2, timeout=120)
            told["address"] = cluster.scheduler_address
            told["dashboard"] = cluster.dashboard_link
            told["health"] = through_the_proxy(ours, cluster)
            answers = dask.gather(dask.map(square, range(60)))
            told["sum"] = sum(value for value, _ in answers)
            told["ran_in"] = sorted({int(job) for _, job in answers})
            told["jobs"] = cluster.job_ids
            cluster.scale(1)
            until(lambda: len(cluster.job_ids) == 1, "one worker is left")
            cluster.adapt(minimum=0, maximum=2, interval="200ms", wait_count=1)
            until(lambda: not cluster.job_ids, "idle, it has none")
            told["adapted"] = dask.submit(square, 7).result(timeout=120)[0]
    mine = int(os.environ["HELIOSTAT_JOB_ID"])
    until(lambda: [job.id for job in ours.jobs.list(unfinished=True)] == [mine], "no worker is left")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
