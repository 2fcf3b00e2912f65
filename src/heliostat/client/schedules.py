"""The client's verbs on schedules."""

import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from heliostat.client.address import Address
from heliostat.client.bodies import job_body
from heliostat.client.transport import Transport


class ScheduleVerbs:
    _transport: Transport

    @property
    def address(self) -> Address:
        raise NotImplementedError

    def schedules(self, *, everybodys: bool = False) -> list[dict[str, Any]]:
        """Yours, by name; with `everybodys`, also those of projects you manage."""
        query = [("all", "true")] if everybodys else []
        found: list[dict[str, Any]] = self._transport.call("GET", "/schedules", query=query)["items"]
        return found

    def create_schedule(
        self, name: str, schedule: str | None, job: Mapping[str, Any], **options: Any
    ) -> dict[str, Any]:
        """`create_schedule("nightly", "0 2 * * *", {"command": "python eval.py"}, overlap="queue")`.

        `schedule` is a repeating interval or a cron line, or None with `parents`. Options: time_zone, overlap,
        catch_up, epsilon (a timedelta, "30m" or seconds), retries, ends_after, soft_error, parents, paused.
        """
        body = self._schedule_body({"name": name, "schedule": schedule, "job": job, **options})
        return self._schedule("POST", "", body)

    def put_chronos(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Makes a schedule of a job as Chronos writes it, or replaces the one of that name."""
        return self._schedule("POST", "/chronos", dict(document))

    def preview_schedule(self, schedule: str, *, time_zone: str | None = None, count: int = 10) -> list[str]:
        """When it would fire, were it made now."""
        body = _given({"schedule": schedule, "time_zone": time_zone, "count": count})
        times: list[str] = self._transport.call("POST", "/schedules/preview", body, may_repeat=True)["times"]
        return times

    def schedule(self, schedule: int | str) -> dict[str, Any]:
        """With its job and its next ten times."""
        return self._schedule("GET", _at(schedule))

    def change_schedule(self, schedule: int | str, /, **changes: Any) -> dict[str, Any]:
        """Options as of `create_schedule`: only what is given changes."""
        return self._schedule("PATCH", _at(schedule), self._schedule_body(changes))

    def pause_schedule(self, schedule: int | str) -> dict[str, Any]:
        return self._schedule("POST", f"{_at(schedule)}/pause")

    def resume_schedule(self, schedule: int | str) -> dict[str, Any]:
        """From now on: what was due meanwhile is not made up for."""
        return self._schedule("POST", f"{_at(schedule)}/resume")

    def run_schedule(self, schedule: int | str) -> dict[str, Any]:
        """Fires it once now; `job_id` in the answer is its job."""
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        answer: dict[str, Any] = self._transport.call("POST", f"/schedules{_at(schedule)}/run", headers=headers)
        return answer

    def remove_schedule(self, schedule: int | str) -> None:
        self._transport.call("DELETE", f"/schedules{_at(schedule)}")

    def firings(self, schedule: int | str, limit: int = 50) -> list[dict[str, Any]]:
        """The times it was due, newest first."""
        path = f"/schedules{_at(schedule)}/firings"
        found: list[dict[str, Any]] = self._transport.call("GET", path, query=[("limit", limit)])["items"]
        return found

    def _schedule(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer: dict[str, Any] = self._transport.call(method, f"/schedules{path}", body)
        return answer

    def _schedule_body(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        body = dict(fields)
        if isinstance(body.get("epsilon"), timedelta):
            body["epsilon"] = int(body["epsilon"].total_seconds())
        if isinstance(job := body.get("job"), Mapping):
            workdir = job.get("workdir") or self.address.default_workdir()
            body["job"] = _given({**job_body(job), "workdir": workdir})
        return body


def _at(schedule: int | str) -> str:
    return f"/{quote(str(schedule), safe='')}"


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
