"""What admins tell everybody."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class News:
    """Shown to everybody until it ends; None: until it is taken away."""

    id: int
    text: str
    author: str
    created_at: datetime
    ends_at: datetime | None = None

    def is_over(self, now: datetime) -> bool:
        return self.ends_at is not None and self.ends_at <= now
