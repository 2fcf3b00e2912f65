"""Past jobs as lines that a replay can read."""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import RowMapping

from heliostat.errors import invalid_field
from heliostat.models import Caller
from heliostat.services.context import Context
from heliostat.services.rights import require_admin
from heliostat.store.past import Period, past_jobs
from heliostat.store.times import to_time

_PAGE = 1000  # jobs read at once
_SAME = (
    "state",
    "cpus",
    "memory_mib",
    "gpus",
    "gpu_type",
    "time_limit_seconds",
    "priority_class",
    "attempts",
    "preemptions",
)
_NAMES = ("user", "project", "department")
Renamed = Callable[[str, str], str]


def export_history(
    context: Context, caller: Caller, period: Period, anonymous: bool = False, *, page: int = _PAGE
) -> Iterator[str]:
    """A line of JSON for each job that is over, oldest first, and a last one that counts them. Admins only."""
    require_admin(caller.user)
    if period.since and period.until and period.since >= period.until:
        raise invalid_field("to", "must be later than from")
    renamed = _pseudonyms(context.settings.home.history_key) if anonymous else _as_it_is
    return _lines(context, period, renamed, anonymous, page)


def _lines(context: Context, period: Period, renamed: Renamed, anonymous: bool, page: int) -> Iterator[str]:
    count, after = 0, 0
    while True:
        with context.store.read() as conn:  # anew for each page: a slow reader must not hold a transaction
            rows = past_jobs(conn, period, after, page)
        for row in rows:
            count, after = count + 1, row["id"]
            # With its true number anyone could look up in the list of jobs whose it was.
            yield _line({"id": count if anonymous else after, **_view(row, renamed)})
        if len(rows) < page:
            break
    yield _line({"jobs": count})


def _view(row: RowMapping, renamed: Renamed) -> dict[str, Any]:
    gpus, placement = row["gpus"], json.loads(row["placement"])
    times = {
        "submitted_at": row["submitted_at"],
        "started_at": row["first_started_at"],
        "ended_at": row["ended_at"],
    }
    return {
        **{name: _time(at) for name, at in times.items()},
        "run_seconds": round(row["run_seconds"], 3),
        **{name: row[name] for name in _SAME},
        "gpus": int(gpus) if gpus == int(gpus) else gpus,
        "tasks": placement.get("tasks", 1),
        "preemptible": bool(row["preemptible"]),
        **{kind: renamed(kind, row[kind]) for kind in _NAMES},
        **({"source": row["origin"].partition(":")[0]} if row["origin"] else {}),
    }


def _pseudonyms(path: Path) -> Renamed:
    """The same name gives the same pseudonym in every export of this installation. Without its key nobody can
    find out the name by trying all that there are."""
    key = _key(path)

    def renamed(kind: str, name: str) -> str:
        return f"{kind}_{hmac.new(key, f'{kind}:{name}'.encode(), hashlib.sha256).hexdigest()[:10]}"

    return renamed


def _key(path: Path) -> bytes:
    """Made at the first use; whoever links it into place first decides."""
    if not path.exists():
        mine = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        mine.touch(0o600)
        mine.write_bytes(secrets.token_bytes(32))
        try:
            os.link(mine, path)
        except FileExistsError:
            pass
        finally:
            mine.unlink()
    return path.read_bytes()


def _as_it_is(kind: str, name: str) -> str:
    return name


def _time(seconds: float | None) -> str | None:
    at = to_time(seconds)
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def _line(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False) + "\n"
