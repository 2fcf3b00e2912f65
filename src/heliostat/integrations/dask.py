"""Dask clusters on Heliostat: `HeliostatCluster`, whose workers are jobs.

The scheduler runs in the process that creates the cluster. A client of the scheduler runs code as that user, and
every user of the machine can connect. So it uses TLS, with certificates that only the workers of this cluster
have.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any

from distributed import Scheduler, Security
from distributed.deploy.spec import ProcessInterface, SpecCluster

from heliostat.client import Client
from heliostat.errors import HeliostatError

_TLS = "DASK_DISTRIBUTED__COMM__TLS__"
_TERMINAL_STATES = ("completed", "failed", "cancelled", "timed_out", "lost")


class HeliostatWorker(ProcessInterface):  # type: ignore[misc]
    """A Dask worker that runs as a job."""

    def __init__(self, scheduler: str, name: Any = None, **options: Any) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self._scheduler, self._name, self._options = scheduler, name, options
        self.job_id: int | None = None

    async def start(self) -> None:
        """Returns when the job is submitted; it may still wait in the queue."""
        self.job_id = await asyncio.to_thread(self._submit)
        await super().start()

    async def close(self) -> None:
        """A job that has already ended counts as success."""
        if self.job_id is not None:
            await asyncio.to_thread(self._cancel, self.job_id)
        await super().close()

    def _submit(self) -> int:
        options = dict(self._options)
        client, python = options.pop("client"), options.pop("python")
        threads, security, name = options.pop("threads"), options.pop("security"), options.pop("job_name")
        command = worker_command(python, self._scheduler, str(self._name), threads)
        env = {**(options.pop("env", None) or {}), **worker_environment(security)}
        return int(client.submit(command, name=name, env=env, **options).id)

    def _cancel(self, job_id: int) -> None:
        client: Client = self._options["client"]
        if client.jobs.get(job_id).data["state"] not in _TERMINAL_STATES:
            client.jobs.cancel(job_id)


class HeliostatCluster(SpecCluster):  # type: ignore[misc]
    """A Dask cluster whose workers are Heliostat jobs.

    `with HeliostatCluster(cpus=4, memory="16G") as cluster: cluster.scale(8)`, or `cluster.adapt(maximum=8)`. All
    other arguments are fields of each worker's job: gpus, time, project, image, environment…
    """

    def __init__(
        self,
        n_workers: int = 0,
        *,
        client: Client | None = None,
        threads: int | None = None,
        python: str = sys.executable,
        scheduler: Mapping[str, Any] | None = None,
        **job: Any,
    ) -> None:
        """`threads` per worker; default: its cpus. `scheduler`: options of Dask's scheduler, such as `host`."""
        self._heliostat = client or Client()
        security = Security.temporary()
        options = {"job_name": job.pop("name", "dask-worker"), **job}  # each worker has a name of its own
        worker = {
            "cls": HeliostatWorker,
            "options": {
                **options,
                "client": self._heliostat,
                "threads": threads or int(job.get("cpus") or 1),
                "python": python,
                "security": security,
            },
        }
        own = {"protocol": "tls://", "security": security, "dashboard_address": "127.0.0.1:0"}
        super().__init__(
            scheduler={"cls": Scheduler, "options": {**own, **(scheduler or {})}},
            worker=worker,
            security=security,
            name="heliostat",
        )
        if n_workers:
            self.scale(n_workers)

    @property
    def job_ids(self) -> list[int]:
        """Ids of the workers' jobs, including those that wait in the queue."""
        return sorted(worker.job_id for worker in self.workers.values() if worker.job_id is not None)

    @property
    def dashboard_link(self) -> str:
        """Inside a job (a notebook): its address through the proxy; otherwise the scheduler's own."""
        job_id = os.environ.get("HELIOSTAT_JOB_ID", "")
        port = self.scheduler_info.get("services", {}).get("dashboard")
        if job_id.isdecimal() and port:
            try:
                return f"{self._heliostat.jobs.get_port(int(job_id), int(port))['url']}status"
            except HeliostatError:  # the cluster works without a dashboard
                pass
        return str(super().dashboard_link)


def worker_command(python: str, scheduler: str, name: str, threads: int) -> list[str]:
    """Without Dask's nanny: Heliostat limits the memory of the job and ends it."""
    command = [python, "-m", "distributed.cli.dask_worker", scheduler, "--name", name]
    return [*command, "--nthreads", str(threads), "--no-nanny", "--no-dashboard", "--death-timeout", "120"]


def worker_environment(security: Any) -> Mapping[str, str]:
    """TLS certificate and key; only the job's owner can read its environment."""
    tls = security.get_tls_config_for_role("worker")
    return {
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True",
        f"{_TLS}CA_FILE": tls["ca_file"],
        f"{_TLS}WORKER__CERT": tls["cert"],
        f"{_TLS}WORKER__KEY": tls["key"],
    }
