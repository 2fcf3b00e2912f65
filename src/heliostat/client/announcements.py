"""Client API for announcements: messages from the admins to all users."""

from datetime import datetime
from typing import TypedDict

from heliostat.client.transport import ApiResource, drop_none


class Announcement(TypedDict):
    id: int
    text: str
    author: str
    created_at: str
    ends_at: str | None  # None: until it is removed


AnnouncementList = list[Announcement]


class Announcements(ApiResource):
    def list(self, *, past: bool = False) -> AnnouncementList:
        """Current announcements, newest first; with `past`, also expired ones (admins only)."""
        return self._items("/announcements", [("past", past or None)])

    def add(self, text: str, ends_at: datetime | None = None) -> Announcement:
        """Adds an announcement. Default end: when it is removed. A time without a zone is local time."""
        end = None if ends_at is None else (ends_at if ends_at.tzinfo else ends_at.astimezone()).isoformat()
        data: Announcement = self._transport.call("POST", "/announcements", drop_none(text=text, ends_at=end))
        return data

    def remove(self, announcement_id: int) -> None:
        """Removes an announcement."""
        self._transport.call("DELETE", f"/announcements/{announcement_id}")
