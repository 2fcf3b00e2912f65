"""Which environments should go, and how they go: never one that a job needs."""

import contextlib
import os
import subprocess
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial

from heliostat.config import Home
from heliostat.controller.environments import to_trash
from heliostat.store import environments as stored
from heliostat.store.database import Store, Transaction
from heliostat.store.environments import Kept
from heliostat.store.images import forget_image


def due(kept: Sequence[Kept], before: datetime | None, most_bytes: int | None) -> list[str]:
    """Digests of those that should go, never one that is needed: not used since, or used longest ago while all are
    too large. Pure."""
    spare = sorted((one for one in kept if not one.is_needed), key=_last_use)
    old = [one for one in spare if before is not None and _last_use(one) < before]
    size = sum(one.environment.size_bytes or 0 for one in kept) - sum(
        one.environment.size_bytes or 0 for one in old
    )
    going = [one.environment.digest for one in old]
    for one in spare[len(old) :] if most_bytes is not None else ():
        if size <= (most_bytes or 0):
            break
        going.append(one.environment.digest)
        size -= one.environment.size_bytes or 0
    return going


def _last_use(one: Kept) -> datetime:
    return one.environment.used_at or one.environment.created_at


def collect(store: Store, home: Home, digests: Iterable[str]) -> int:
    """Remove these, as far as nobody needs them now; how many those were."""
    gone = sum(store.write(partial(take_away, home=home, digest=digest)) for digest in digests)
    empty_trash(home)
    return gone


def take_away(tx: Transaction, home: Home, digest: str) -> bool:
    """Unless a job needs it. The rename is part of the change: nobody can come to need it in between."""
    kept = stored.find(tx.conn, digest)
    if kept is None or kept.is_needed:
        return False
    stored.remove(tx, digest)
    forget_image(tx, digest)
    to_trash(home, digest)
    return True


def empty_trash(home: Home) -> None:
    """By `rm`, which follows no link and leaves other file systems alone: in there is the work of people."""
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(home.environments / "trash"):
            words = ["rm", "-rf", "--one-file-system", "--", entry.path]
            subprocess.run(words, check=False, capture_output=True, stdin=subprocess.DEVNULL)
