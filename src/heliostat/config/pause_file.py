"""The pause of an installation: a file, so that it outlasts the server and can be made without one.

A paused server answers, and touches no job: it starts and stops none, fires no schedule and sends no notification.
"""

import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from heliostat.config.home import Home


@dataclass(frozen=True, slots=True)
class Pause:
    at: str  # ISO 8601
    reason: str
    after_restore: bool = False  # the database is one of a backup


def find_pause(home: Home) -> Pause | None:
    try:
        text = home.pause_file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        return Pause(**json.loads(text))
    except (ValueError, TypeError):
        return Pause("", f"{home.pause_file} cannot be read", after_restore=True)  # the cautious answer


def pause(home: Home, reason: str, *, after_restore: bool = False) -> Pause:
    """Atomic. An existing pause stays as it is, except that a restore replaces it."""
    if not after_restore and (found := find_pause(home)):
        return found
    made = Pause(datetime.now(UTC).isoformat(timespec="seconds"), reason, after_restore)
    home.path.mkdir(parents=True, exist_ok=True)
    draft = home.pause_file.with_suffix(".new")
    draft.write_text(json.dumps(asdict(made)) + "\n", encoding="utf-8")
    with open(draft, "rb") as file:
        os.fsync(file.fileno())
    draft.replace(home.pause_file)
    return made


def end_pause(home: Home) -> None:
    home.pause_file.unlink(missing_ok=True)
