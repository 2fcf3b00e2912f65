"""What a job waits for, as it is typed."""

from collections.abc import Sequence
from datetime import date, datetime


def parents_of(given: Sequence[str] | None) -> list[str] | None:
    """An option that may repeat, each time with several: `--after 12,13 --after array:5`."""
    return [part.strip() for text in given for part in text.split(",") if part.strip()] if given else None


def begin_of(given: str | date) -> str:
    """As the server takes it: a time without a zone is that of this machine. YAML has times of its own."""
    text = given.isoformat() if isinstance(given, date) else given.strip()
    try:
        return text if text.startswith("+") else datetime.fromisoformat(text).astimezone().isoformat()
    except (ValueError, OverflowError):
        return text  # the server says what is wrong with it
