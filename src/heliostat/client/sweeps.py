"""Client API for parameter sweeps."""

from collections.abc import Mapping
from typing import Any, Self, SupportsInt

from heliostat.client.handle import Handle
from heliostat.client.jobs import TERMINAL_JOB_STATES, JobHandle, Jobs
from heliostat.client.notebook_html import html_table
from heliostat.client.request_bodies import job_body
from heliostat.client.source_code import with_source_code
from heliostat.client.transport import ApiRequest, ApiResource, idempotency_header


class SweepHandle(Handle[dict[str, Any]]):
    """A submitted sweep. Its properties are those of the last response; `refresh()` updates them."""

    __slots__ = ()
    _title = "Sweep"

    @property
    def name(self) -> str:
        """Its name in the file."""
        return str(self.data["name"])

    @property
    def runs(self) -> list[dict[str, Any]]:
        """Index, job_id, state, values and metrics of each run."""
        runs: list[dict[str, Any]] = (self if "runs" in self.data else self.refresh()).data["runs"]
        return runs

    @property
    def jobs(self) -> list[JobHandle]:
        """The jobs of its runs."""
        return [JobHandle(self._transport, run["job_id"]) for run in self.runs]

    @property
    def is_terminal(self) -> bool:
        """Whether all runs have ended."""
        return all(run["state"] in TERMINAL_JOB_STATES for run in self.runs)

    @property
    def ok(self) -> bool:
        """Whether all runs have completed."""
        return all(run["state"] == "completed" for run in self.runs)

    def refresh(self, sort: str | None = None) -> Self:
        """Loads the current data from the server; `sort="-acc"`: runs by this metric, descending."""
        self._data = Sweeps(self._transport).get(self.id, sort).data
        return self

    def wait(self, timeout: float | None = None, *, check: bool = False) -> Self:
        """Waits until all runs have ended. Raises WaitTimedOut after `timeout` seconds.

        With `check`, raises JobFailed if a run has not completed.
        """
        Jobs(self._transport).wait(self.jobs, timeout, check=check)
        return self.refresh()

    def cancel(self, *, force: bool = False) -> Self:
        """Cancels all runs that have not ended."""
        Jobs(self._transport).cancel_array(self.data["array_id"], force=force)
        return self.refresh()

    def csv(self, sort: str | None = None) -> str:
        """Parameters and metrics of all runs as CSV."""
        return Sweeps(self._transport).csv(self.id, sort)

    def _summary(self) -> str:
        count = self.data["count"]
        return f"{self.name}: {count} {'run' if count == 1 else 'runs'}"

    def _repr_html_(self) -> str:
        runs, names, metrics = self.runs, self.data["parameters"], self.data["metrics"]
        rows = (
            [run["job_id"], run["state"]]
            + [run["values"].get(name) for name in names]
            + [run["metrics"].get(name, {}).get("value") for name in metrics]
            for run in runs
        )
        return html_table(f"Sweep {self.id} {self.name}", ("job", "state", *names, *metrics), rows)


SweepList = list[SweepHandle]


class Sweeps(ApiResource):
    def submit(
        self, job: Mapping[str, Any], *, idempotency_key: str | None = None, record: bool = True, **sweep: Any
    ) -> SweepHandle:
        """`submit({"command": ["python", "t.py", "{lr}"]}, name="lr", grid={"lr": [0.1, 0.01]})`.

        Instead of `grid`: `list`, or `random={"count": 20, "seed": 7, "values": {…}}`. Also: at_once, retries,
        retry_wait.
        """
        workdir = job.get("workdir") or (None if job.get("upload") else self._transport.address.default_workdir())
        body = {**job_body(job), **({} if workdir is None else {"workdir": str(workdir)})}
        return self.submit_document(
            {**sweep, "job": body},
            idempotency_key=idempotency_key,
            record=record,
            folder=job.get("upload") or workdir,
        )

    def submit_document(
        self,
        document: Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        record: bool = True,
        folder: str | None = None,
    ) -> SweepHandle:
        """Submits the contents of a sweep file; `folder` is the one whose git state is recorded."""
        response: dict[str, Any] = self._transport.call(
            "POST",
            "/sweeps",
            with_source_code({"sweep": dict(document)}, record, folder),
            headers=idempotency_header(idempotency_key),
        )
        return SweepHandle(self._transport, response["id"], response)

    def list(self, *, all_users: bool = False, limit: int = 50, before: int | None = None) -> SweepList:
        """The caller's sweeps, newest first; with `all_users`, also those of projects the caller manages."""
        query = [("limit", limit), ("all", all_users or None), ("before", before)]
        return [SweepHandle(self._transport, data["id"], data) for data in self._items("/sweeps", query)]

    def get(self, number: SupportsInt, sort: str | None = None) -> SweepHandle:
        """A sweep with the parameters and metrics of its runs; `sort="-acc"`: by this metric, descending."""
        query = [("sort", sort)] if sort else []
        response: dict[str, Any] = self._transport.call("GET", f"/sweeps/{int(number)}", query=query)
        return SweepHandle(self._transport, response["id"], response)

    def csv(self, number: SupportsInt, sort: str | None = None) -> str:
        """Parameters and metrics of all runs as CSV."""
        query = [("format", "csv"), *([("sort", sort)] if sort else [])]
        return self._transport.send(ApiRequest("GET", f"/sweeps/{int(number)}", query=query)).body.decode("utf-8")
