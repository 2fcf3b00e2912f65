"""The client's verbs on news from the admins."""

from datetime import datetime

from heliostat.client.shapes import News
from heliostat.client.transport import Transport


class NewsVerbs:
    _transport: Transport

    def news(self, *, past: bool = False) -> list[News]:
        """What everybody should read, newest first; with `past`, for admins, also what is over."""
        query = [("past", "true")] if past else []
        found: list[News] = self._transport.call("GET", "/news", query=query)["items"]
        return found

    def add_news(self, text: str, ends_at: datetime | None = None) -> News:
        """Without an end, until it is removed. A time without a zone is meant in the local one."""
        end = None if ends_at is None else (ends_at if ends_at.tzinfo else ends_at.astimezone()).isoformat()
        body = {"text": text} if end is None else {"text": text, "ends_at": end}
        made: News = self._transport.call("POST", "/news", body)
        return made

    def remove_news(self, news_id: int) -> None:
        self._transport.call("DELETE", f"/news/{news_id}")
