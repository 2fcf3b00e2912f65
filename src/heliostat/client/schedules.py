"""The client's verbs on schedules."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from heliostat.client.request_bodies import job_body
from heliostat.client.transport import (
    ApiResource,
    JsonObjectList,
    drop_none,
    idempotency_header,
    quote_path_segment,
)

TimeList = list[str]


class Schedules(ApiResource):
    def list(self, *, all_users: bool = False) -> JsonObjectList:
        """Yours, by name; with `all_users`, also those of projects you manage."""
        return self._items("/schedules", [("all", all_users or None)])

    def create(self, name: str, schedule: str | None, job: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """`create("nightly", "0 2 * * *", {"command": "python eval.py"}, overlap="queue")`.

        `schedule` is a repeating interval or a cron line, or None with `parents`. Options: time_zone, overlap,
        catch_up, epsilon (a timedelta, "30m" or seconds), retries, ends_after, soft_error, parents, paused.
        """
        body = self._body({"name": name, "schedule": schedule, "job": job, **options})
        return self._call("POST", "", body)

    def put_chronos(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Makes a schedule of a job as Chronos writes it, or replaces the one of that name."""
        return self._call("POST", "/chronos", dict(document))

    def preview(self, schedule: str, *, time_zone: str | None = None, count: int = 10) -> TimeList:
        """When it would fire, were it made now."""
        body = drop_none(schedule=schedule, time_zone=time_zone, count=count)
        times: list[str] = self._transport.call("POST", "/schedules/preview", body, may_repeat=True)["times"]
        return times

    def get(self, schedule: int | str) -> dict[str, Any]:
        """With its job and its next ten times."""
        return self._call("GET", _at(schedule))

    def change(self, schedule: int | str, /, **changes: Any) -> dict[str, Any]:
        """Options as of `create`: only what is given changes."""
        return self._call("PATCH", _at(schedule), self._body(changes))

    def pause(self, schedule: int | str) -> dict[str, Any]:
        return self._call("POST", f"{_at(schedule)}/pause")

    def resume(self, schedule: int | str) -> dict[str, Any]:
        """From now on: what was due meanwhile is not made up for."""
        return self._call("POST", f"{_at(schedule)}/resume")

    def run(self, schedule: int | str) -> dict[str, Any]:
        """Fires it once now; `job_id` in the answer is its job."""
        answer: dict[str, Any] = self._transport.call(
            "POST", f"/schedules{_at(schedule)}/run", headers=idempotency_header()
        )
        return answer

    def remove(self, schedule: int | str) -> None:
        self._transport.call("DELETE", f"/schedules{_at(schedule)}")

    def firings(self, schedule: int | str, limit: int = 50) -> JsonObjectList:
        """The times it was due, newest first."""
        return self._items(f"/schedules{_at(schedule)}/firings", [("limit", limit)])

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer: dict[str, Any] = self._transport.call(method, f"/schedules{path}", body)
        return answer

    def _body(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        body = dict(fields)
        if isinstance(body.get("epsilon"), timedelta):
            body["epsilon"] = int(body["epsilon"].total_seconds())
        if isinstance(job := body.get("job"), Mapping):
            workdir = job.get("workdir") or self._transport.address.default_workdir()
            body["job"] = drop_none(**{**job_body(job), "workdir": workdir})
        return body


def _at(schedule: int | str) -> str:
    return f"/{quote_path_segment(schedule)}"
