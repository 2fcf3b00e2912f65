"""The client's verbs that explain the queue and account for it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from heliostat.client.bodies import job_body
from heliostat.client.shapes import Account, Foreseen, JobOptions, ReportLine, ShareTree, Why
from heliostat.client.transport import Request, Transport

if TYPE_CHECKING:
    from heliostat.client.jobs import JobHandle

_THINKING_SECONDS = 60.0


class QueueVerbs:
    _transport: Transport

    def why(self, job: "int | JobHandle", *, what_if: bool = False) -> Why:
        """Why a job waits and when it will start; with `what_if`, also which other request would start earlier."""
        number = job if isinstance(job, int) else job.id
        query = [("what_if", "true")] if what_if else []
        told: Why = self._transport.call(
            "GET", f"/jobs/{number}/why", query=query, timeout_seconds=_THINKING_SECONDS
        )
        return told

    def when(
        self,
        command: str | Sequence[str] | None = None,
        *,
        array: str | None = None,
        **options: Unpack[JobOptions],
    ) -> Foreseen:
        """When such a job would start, were it submitted now: `when(gpus=4, time="8h")`. Stores nothing.

        Takes what `submit` takes; the command may be left out, and counts only by the name it gives the job: how
        long those of that name took. Of an array, one element is looked at.
        """
        given: dict[str, Any] = {"command": command, "array": array, **options}
        foreseen: Foreseen = self._transport.call(
            "POST", "/when", job_body(given), may_repeat=True, timeout_seconds=_THINKING_SECONDS
        )
        return foreseen

    def share(self) -> list[Account]:
        """The fair-share tree: departments, below them projects, below them users."""
        return self.share_tree()["items"]

    def share_tree(self) -> ShareTree:
        """The same, and whose count it is: `{"items", "counted_by"}`."""
        tree: ShareTree = self._transport.call("GET", "/share")
        return tree

    def report(self, month: str | None = None, by: str = "project") -> list[ReportLine]:
        """Who used what in a month ("2026-11"), by department, project or user."""
        lines: list[ReportLine] = self._transport.call("GET", "/report", query=[("month", month), ("by", by)])[
            "items"
        ]
        return lines

    def report_csv(self, month: str | None = None, by: str = "project") -> str:
        """The same as a table for spreadsheets."""
        query = [("month", month), ("by", by), ("format", "csv")]
        return self._transport.send(Request("GET", "/report", query=query)).body.decode("utf-8")
