"""The client's verbs on notifications (mail, chat, webhook) and announcements (announcements from the admins)."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict

from heliostat.client.transport import ApiResource, drop_none


class Notification(TypedDict, total=False):
    """What is sent where."""

    id: int
    user: str
    project: str | None
    channel: str  # webhook, chat, email
    address: str  # of a URL only the host
    triggers: list[str]
    created_at: str
    sent_at: str | None
    problem: str | None
    waiting: int
    given_up: int
    secret: str | None  # only in the answer to `add`, this once


class Announcement(TypedDict):
    id: int
    text: str
    author: str
    created_at: str
    ends_at: str | None  # None: until it is removed


NotificationList = list[Notification]
AnnouncementList = list[Announcement]


class Notifications(ApiResource):
    def list(self, *, all_users: bool = False) -> NotificationList:
        """Yours, and those of projects you manage; with `all_users`, for admins, all."""
        return self._items("/notifications", [("all", all_users or None)])

    def add(
        self, channel: str, address: str, triggers: str | Sequence[str] | None = None, project: str | None = None
    ) -> Notification:
        """Be told at that address; `triggers=[]`: only of jobs that ask. Its secret is told this once."""
        if not isinstance(triggers, str | None):
            triggers = list(triggers)
        body = drop_none(channel=channel, address=address, triggers=triggers, project=project)
        made: Notification = self._transport.call("POST", "/notifications", body)
        return made

    def test(self, notification_id: int) -> str | None:
        """Send a test now. None: it has arrived; else why not."""
        path = f"/notifications/{notification_id}/test"
        problem: str | None = self._transport.call("POST", path, timeout_seconds=60.0)["problem"]
        return problem

    def remove(self, notification_id: int) -> None:
        self._transport.call("DELETE", f"/notifications/{notification_id}")


class Announcements(ApiResource):
    def list(self, *, past: bool = False) -> AnnouncementList:
        """What everybody should read, newest first; with `past`, for admins, also what is over."""
        return self._items("/announcements", [("past", past or None)])

    def add(self, text: str, ends_at: datetime | None = None) -> Announcement:
        """Without an end, until it is removed. A time without a zone is meant in the local one."""
        end = None if ends_at is None else (ends_at if ends_at.tzinfo else ends_at.astimezone()).isoformat()
        made: Announcement = self._transport.call("POST", "/announcements", drop_none(text=text, ends_at=end))
        return made

    def remove(self, announcement_id: int) -> None:
        self._transport.call("DELETE", f"/announcements/{announcement_id}")
