"""Client API for notifications by e-mail, chat or webhook."""

from collections.abc import Sequence
from typing import TypedDict

from heliostat.client.transport import ApiResource, drop_none


class Notification(TypedDict, total=False):
    """A notification: its channel, address and triggers."""

    id: int
    user: str
    project: str | None
    channel: str  # webhook, chat, email
    address: str  # for a URL only the host
    triggers: list[str]
    created_at: str
    sent_at: str | None
    problem: str | None
    pending_deliveries: int
    failed_deliveries: int
    secret: str | None  # only in the response to `add`


NotificationList = list[Notification]


class Notifications(ApiResource):
    def list(self, *, all_users: bool = False) -> NotificationList:
        """Those of the caller and of projects the caller manages; with `all_users`, all (admins only)."""
        return self._items("/notifications", [("all", all_users or None)])

    def add(
        self, channel: str, address: str, triggers: str | Sequence[str] | None = None, project: str | None = None
    ) -> Notification:
        """Adds a notification; `triggers=[]`: only for jobs with `notify`. Its secret is shown only once."""
        if not isinstance(triggers, str | None):
            triggers = list(triggers)
        body = drop_none(channel=channel, address=address, triggers=triggers, project=project)
        data: Notification = self._transport.call("POST", "/notifications", body)
        return data

    def test(self, notification_id: int) -> str | None:
        """Sends a test message now. Returns None if it was delivered, else the problem."""
        path = f"/notifications/{notification_id}/test"
        problem: str | None = self._transport.call("POST", path, timeout_seconds=60.0)["problem"]
        return problem

    def remove(self, notification_id: int) -> None:
        """Removes a destination of notifications."""
        self._transport.call("DELETE", f"/notifications/{notification_id}")
