"""Past jobs: written as lines that a replay can read, and brought in from another system.

Those that are brought in are jobs that are over, with a mark of where they come from. None can be run again, and
they weigh nothing in shares and quotas: what they used was elsewhere.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import RowMapping

from heliostat.auth.identities import is_account_name
from heliostat.engines.contract import PastJob
from heliostat.engines.factory import make_sacct_reader
from heliostat.errors import HeliostatError, Invalid, invalid_field, safe_repr
from heliostat.models import (
    Caller,
    Job,
    JobSpec,
    PlacementRequest,
    Resources,
    Role,
    TaskLayout,
    TaskPlacement,
    User,
)
from heliostat.models.jobs import PRIORITY_CLASSES
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin
from heliostat.store import accounts
from heliostat.store.database import Transaction
from heliostat.store.history import ImportedJob, SubmissionPeriod, add_imported_jobs, list_finished_job_rows
from heliostat.store.timestamps import to_datetime

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
NameMapping = Callable[[str, str], str]

_AT_ONCE = 1000  # written in one transaction
_OTHERS = "*"
_MOST_NAMED = 20


def export_history(
    context: Context, caller: Caller, period: SubmissionPeriod, anonymous: bool = False, *, page: int = _PAGE
) -> Iterator[str]:
    """A line of JSON for each job that is over, oldest first, and a last one that counts them. Admins only."""
    require_admin(caller.user)
    if period.since and period.until and period.since >= period.until:
        raise invalid_field("to", "must be later than from")
    renamed = _pseudonyms(context.settings.home.history_key) if anonymous else _as_it_is
    return _lines(context, period, renamed, anonymous, page)


def _lines(
    context: Context, period: SubmissionPeriod, renamed: NameMapping, anonymous: bool, page: int
) -> Iterator[str]:
    count, after = 0, 0
    while True:
        with context.store.read() as conn:  # anew for each page: a slow reader must not hold a transaction
            rows = list_finished_job_rows(conn, period, after, page)
        for row in rows:
            count, after = count + 1, row["id"]
            # With its true number anyone could look up in the list of jobs whose it was.
            yield _line({"id": count if anonymous else after, **_view(row, renamed)})
        if len(rows) < page:
            break
    yield _line({"jobs": count})


def _view(row: RowMapping, renamed: NameMapping) -> dict[str, Any]:
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


def _pseudonyms(path: Path) -> NameMapping:
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
    at = to_datetime(seconds)
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def _line(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True)
class SacctImportRequest:
    """What `sacct` printed, with its header, and whose names mean what here."""

    text: str
    delimiter: str = "|"
    projects: Mapping[str, str] = field(default_factory=dict)  # by account; `*`: of all accounts not named
    users: Mapping[str, str] = field(default_factory=dict)  # by Unix name


@dataclass(frozen=True, slots=True)
class HistoryImportResult:
    jobs: int  # new
    known: int  # brought in earlier
    skipped: Mapping[str, int]
    accounts: Sequence[str]  # that were made, for names that had none


def import_slurm_history(context: Context, caller: Caller, given: SacctImportRequest) -> HistoryImportResult:
    """All of it or, when an account has no project, nothing. Done again it changes nothing. Admins only."""
    require_admin(caller.user)
    reader = make_sacct_reader(ZoneInfo(context.settings.server.effective_time_zone), given.delimiter)
    past = list(reader.read_jobs(given.text.split("\n")))
    projects = _projects(context, {job.account for job in past}, given.projects)
    users, made = _users(context, caller, {job.user for job in past}, given.users)
    fresh = [ImportedJob(_job(one, users[one.user], projects[one.account]), one.usage) for one in past]
    added, rest = 0, iter(fresh)
    while part := list(islice(rest, _AT_ONCE)):
        added += context.store.write(lambda tx, part=part: add_imported_jobs(tx, part))  # type: ignore[misc]
    done = HistoryImportResult(added, len(past) - added, dict(reader.skipped_counts), made)
    if added or made:
        detail = {"jobs": done.jobs, "known": done.known, "accounts": len(made)}
        now = context.now()
        context.store.write(
            lambda tx: accounts.add_audit_entry(tx, caller, "history.import", "slurm", detail, now)
        )
    return done


def _projects(context: Context, slurm_accounts: Iterable[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """The one named for it, else the one of the same name, else the one for all others."""
    with context.store.read() as conn:
        known = {project.name for project in accounts.list_projects(conn)}
    if unknown := sorted(set(chosen.values()) - known):
        raise Invalid(
            f"There is no project {safe_repr(unknown[0])}.",
            "`helio project create` makes it.",
            fields={"projects": f"{safe_repr(unknown[0])} does not exist"},
        )
    found: dict[str, str] = {}
    for account in slurm_accounts:
        same = account if account in known else None
        if project := chosen.get(account) or same or chosen.get(_OTHERS):
            found[account] = project
    if missing := sorted(set(slurm_accounts) - found.keys()):
        names = ", ".join(map(safe_repr, missing[:_MOST_NAMED]))
        more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
        raise Invalid(
            f"No project is known for the accounts {names}{more}.",
            "Name one for each with --project ACCOUNT=PROJECT, or for all others with --project '*=PROJECT'.",
            fields={"projects": f"none for {names}"},
        )
    return found


def _users(
    context: Context, caller: Caller, names: Iterable[str], chosen: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """Whose each name is here; and the accounts that had to be made."""
    with context.store.read() as conn:
        by_unix = {user.unix_user: user.name for user in accounts.list_users(conn) if user.unix_user}
        without = {user.name for user in accounts.list_users(conn) if user.unix_user is None}
    if wrong := sorted(set(chosen.values()) - set(by_unix.values()) - without):
        what = f"{safe_repr(wrong[0])} does not exist"
        raise Invalid(f"There is no user {safe_repr(wrong[0])}.", "`helio user list`", fields={"users": what})
    found: dict[str, str] = {}
    made: list[str] = []
    for name in sorted(names):
        known = chosen.get(name) or by_unix.get(name) or (name if name in without else None)
        if known is None and (known := _admitted(context, name)):
            made.append(known)
        if known is None:
            known, is_new = context.store.write(lambda tx, name=name: _remembered(tx, context, name))  # type: ignore[misc]
            made += [known] if is_new else []
        found[name] = known
    return found, made


def _admitted(context: Context, name: str) -> str | None:
    """A Unix user of this machine gets the account that their first contact would make, if that is let in."""
    unix = context.identities.unix_accounts.find_by_name(name)
    if unix is None or not context.settings.auth.admit_local_users or unix.name != name:
        return None
    try:
        return context.identities.authenticate_peer(unix.uid).name
    except HeliostatError:
        return None


def _remembered(tx: Transaction, context: Context, name: str) -> tuple[str, bool]:
    """An account that is a name and nothing else: nobody can log in as it, and no job can run as it."""
    wanted = name if is_account_name(name) else "_" + re.sub(r"[^a-z0-9_.-]", "_", name.lower())[:31]
    user = accounts.find_user(tx.conn, wanted)
    if user is not None and user.unix_user is not None:  # somebody else has this name here
        wanted = f"{wanted[:26]}.slurm"
        user = accounts.find_user(tx.conn, wanted)
    if user is not None:
        return wanted, False
    accounts.add_user(tx, User(wanted, Role.USER, None, False, context.now()))
    return wanted, True


def _job(past: PastJob, user: str, project: str) -> Job:
    """Without its number."""
    tasks = _tasks(past)
    nodes = past.nodes[:tasks] if past.started_at else ()
    return Job(
        id=0,
        kind="batch",
        name=past.name,
        state=past.state,
        user=user,
        unix_user=past.user,
        project=project,
        resources=Resources(
            past.cpus // tasks, max(1, past.memory_mib // tasks), past.gpus // tasks, past.gpu_type
        ),
        spec=JobSpec(),
        submitted_at=past.submitted_at,
        time_limit_seconds=past.time_limit_seconds,
        attempt=1 if past.started_at else 0,
        node=nodes[0] if nodes else None,
        started_at=past.started_at,
        ended_at=past.ended_at,
        exit_code=past.exit_code,
        reason="; ".join(filter(None, [past.reason, f"imported from Slurm, where it was {past.external_job_id}"])),
        placement=PlacementRequest(tasks, TaskLayout.SPREAD) if tasks > 1 else PlacementRequest(),
        places=tuple(TaskPlacement(node) for node in nodes) if tasks > 1 else (),
        priority_class=past.qos if past.qos in PRIORITY_CLASSES else "normal",
        origin=f"slurm:{past.cluster.replace(':', '_')}:{past.external_job_id}",
    )


def _tasks(past: PastJob) -> int:
    """One for each node, if all have the same; else it is told as one, so that the sums stay true."""
    count = len(past.nodes)
    is_even = past.started_at is not None and past.cpus % max(count, 1) == past.gpus % max(count, 1) == 0
    return count if count > 1 and is_even else 1
