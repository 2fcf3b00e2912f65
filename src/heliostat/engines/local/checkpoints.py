"""When jobs have said, by touching a file, that their work is saved. The files are theirs, and not trusted."""

import os
import stat
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from heliostat.engines.environment import CHECKPOINT_FILE
from heliostat.engines.folders import JobFolder
from heliostat.models import Attempt, AttemptId


def checkpoint_times(jobs: Path, attempts: Iterable[Attempt], now: datetime) -> dict[AttemptId, datetime]:
    """Of those that have said so since they started; a time to come counts as now."""
    found: dict[AttemptId, datetime] = {}
    for attempt in attempts:
        folder = JobFolder.of(jobs, attempt.job.id)
        saved_at = _modified_at(f"{folder.checkpoints}/{CHECKPOINT_FILE}")
        started_at = attempt.job.started_at
        if saved_at is not None and started_at is not None and saved_at >= started_at:
            found[attempt.id] = min(saved_at, now)
    return found


def _modified_at(path: str) -> datetime | None:
    """Of a plain file; a link could tell of a file that its user may not see."""
    try:
        facts = os.lstat(path)
        return datetime.fromtimestamp(facts.st_mtime, UTC) if stat.S_ISREG(facts.st_mode) else None
    except (OSError, OverflowError, ValueError):
        return None
