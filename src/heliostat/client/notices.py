"""The client's verbs on notices."""

from collections.abc import Sequence
from typing import Any, TypedDict

from heliostat.client.transport import Transport


class NoticeData(TypedDict, total=False):
    """Where somebody is told what."""

    id: int
    user: str
    project: str | None
    channel: str  # webhook, chat, email
    address: str  # of a URL only the host
    occasions: list[str]
    created_at: str
    sent_at: str | None
    problem: str | None
    waiting: int
    given_up: int
    secret: str | None  # only in the answer to `add_notice`, this once


class NoticeVerbs:
    _transport: Transport

    def notices(self, *, everybodys: bool = False) -> list[NoticeData]:
        """Yours, and those of projects you manage; with `everybodys`, for admins, all."""
        query = [("everybodys", "true")] if everybodys else []
        found: list[NoticeData] = self._transport.call("GET", "/notices", query=query)["items"]
        return found

    def add_notice(
        self, channel: str, address: str, occasions: str | Sequence[str] | None = None, project: str | None = None
    ) -> NoticeData:
        """Be told at that address; `occasions=[]`: only of jobs that ask. Its secret is told this once."""
        body: dict[str, Any] = {"channel": channel, "address": address}
        if occasions is not None:
            body["occasions"] = occasions if isinstance(occasions, str) else list(occasions)
        if project is not None:
            body["project"] = project
        made: NoticeData = self._transport.call("POST", "/notices", body)
        return made

    def try_notice(self, notice_id: int) -> str | None:
        """Send a test now. None: it has arrived; else why not."""
        path = f"/notices/{notice_id}/test"
        problem: str | None = self._transport.call("POST", path, timeout_seconds=60.0)["problem"]
        return problem

    def remove_notice(self, notice_id: int) -> None:
        self._transport.call("DELETE", f"/notices/{notice_id}")
