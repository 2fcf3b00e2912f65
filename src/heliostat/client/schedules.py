"""Client API for schedules."""

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
from heliostat.client.uploads import with_upload_id

TimeList = list[str]


class Schedules(ApiResource):
    def list(self, *, all_users: bool = False) -> JsonObjectList:
        """The caller's schedules by name; with `all_users`, also those of projects the caller manages."""
        return self._items("/schedules", [("all", all_users or None)])

    def create(self, name: str, schedule: str | None, job: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """`create("nightly", "0 2 * * *", {"command": "python eval.py"}, overlap="queue")`.

        `schedule` is a repeating interval or a cron expression, or None with `parents`. Options: time_zone,
        overlap, catch_up, epsilon (a timedelta, "30m" or seconds), retries, ends_after, soft_error, parents,
        paused.
        """
        body = self._body({"name": name, "schedule": schedule, "job": job, **options})
        return self._call("POST", "", body)

    def put_chronos(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Creates a schedule from a Chronos job, or replaces the schedule with that name."""
        return self._call("POST", "/chronos", dict(document))

    def preview(self, schedule: str, *, time_zone: str | None = None, count: int = 10) -> TimeList:
        """The next firing times of an expression. Stores nothing."""
        body = drop_none(schedule=schedule, time_zone=time_zone, count=count)
        times: list[str] = self._transport.call("POST", "/schedules/preview", body, may_repeat=True)["times"]
        return times

    def get(self, schedule: int | str) -> dict[str, Any]:
        """A schedule with its job and its next ten firing times."""
        return self._call("GET", _path(schedule))

    def change(self, schedule: int | str, /, **changes: Any) -> dict[str, Any]:
        """Changes the given options; they are those of `create`."""
        return self._call("PATCH", _path(schedule), self._body(changes))

    def pause(self, schedule: int | str) -> dict[str, Any]:
        """Pauses it until it is resumed; its submitted jobs continue."""
        return self._call("POST", f"{_path(schedule)}/pause")

    def resume(self, schedule: int | str) -> dict[str, Any]:
        """Resumes from now on; firings that were due meanwhile are skipped."""
        return self._call("POST", f"{_path(schedule)}/resume")

    def run(self, schedule: int | str) -> dict[str, Any]:
        """Fires it once now; `job_id` in the response is its job."""
        data: dict[str, Any] = self._transport.call(
            "POST", f"/schedules{_path(schedule)}/run", headers=idempotency_header()
        )
        return data

    def remove(self, schedule: int | str) -> None:
        """Removes it and its firing history; its jobs stay."""
        self._transport.call("DELETE", f"/schedules{_path(schedule)}")

    def firings(self, schedule: int | str, limit: int = 50) -> JsonObjectList:
        """Its past firings, newest first."""
        return self._items(f"/schedules{_path(schedule)}/firings", [("limit", limit)])

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        data: dict[str, Any] = self._transport.call(method, f"/schedules{path}", body)
        return data

    def _body(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        body = dict(fields)
        if isinstance(body.get("epsilon"), timedelta):
            body["epsilon"] = int(body["epsilon"].total_seconds())
        if isinstance(job := body.get("job"), Mapping):
            job = job_body(with_upload_id(self._transport, job))
            workdir = job.get("workdir") or self._transport.address.default_workdir()
            body["job"] = job if "upload" in job else drop_none(**{**job, "workdir": workdir})
        return body


def _path(schedule: int | str) -> str:
    return f"/{quote_path_segment(schedule)}"
