"""Job history: export as lines of JSON for a replay, and import of past jobs from Slurm's accounting.

Imported jobs have ended and carry their origin. They cannot be rerun, and they do not count in shares and quotas,
because they did not use this cluster.
"""

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from sqlalchemy import RowMapping

from heliostat.auth.authentication import is_account_name
from heliostat.engines.contract import PastJob
from heliostat.engines.factory import make_sacct_reader
from heliostat.errors import HeliostatError, Invalid, invalid_field, safe_repr
from heliostat.models import (
    Caller,
    Job,
    JobId,
    JobSpec,
    PlacementRequest,
    Resources,
    Role,
    TaskLayout,
    TaskPlacement,
    User,
    job_id_of_attempt,
)
from heliostat.models.jobs import PRIORITY_CLASSES
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin
from heliostat.store import accounts
from heliostat.store.database import Transaction
from heliostat.store.history import ImportedJob, SubmissionPeriod, add_imported_jobs, list_finished_job_rows
from heliostat.store.jobs import get_jobs_without_spec
from heliostat.store.timestamps import to_datetime

_PAGE = 1000  # jobs read at once
_COPIED_FIELDS = (
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

_BATCH_SIZE = 1000  # written in one transaction
_OWN_JOBS = "jobs of this Heliostat"
_MAX_CLOCK_DIFFERENCE = timedelta(minutes=1)
_OTHERS = "*"
_MAX_LISTED = 20


def export_history(
    context: Context, caller: Caller, period: SubmissionPeriod, anonymous: bool = False, *, page: int = _PAGE
) -> Iterator[str]:
    """A line of JSON for each ended job, oldest first, and a last line with their number. Admins only."""
    require_admin(caller.user)
    if period.since and period.until and period.since >= period.until:
        raise invalid_field("to", "must be later than from")
    names = _Renaming(_pseudonyms(context.settings.home.history_key), anonymous)
    return _lines(context, period, names, page)


def _lines(context: Context, period: SubmissionPeriod, names: "_Renaming", page: int) -> Iterator[str]:
    count, after = 0, 0
    while True:
        with context.store.read() as conn:  # one per page: a slow reader must not keep a transaction open
            rows = list_finished_job_rows(conn, period, after, page)
        for row in rows:
            count, after = count + 1, row["id"]
            # Anonymous exports use new ids: with the real id, the list of jobs would show the user.
            yield _line({"id": count if names.anonymous else after, **_view(row, names)})
        if len(rows) < page:
            break
    yield _line({"jobs": count})


@dataclass(frozen=True, slots=True)
class _Renaming:
    """Names of jobs may hold secrets, and always become pseudonyms."""

    pseudonym: NameMapping
    anonymous: bool  # names of users and projects become pseudonyms, too

    def account(self, kind: str, name: str) -> str:
        return self.pseudonym(kind, name) if self.anonymous else name


def _view(row: RowMapping, names: _Renaming) -> dict[str, Any]:
    gpus, placement = row["gpus"], json.loads(row["placement"])
    times = {
        "submitted_at": row["submitted_at"],
        "started_at": row["first_started_at"],
        "ended_at": row["ended_at"],
    }
    return {
        **{name: _time(at) for name, at in times.items()},
        "run_seconds": round(row["run_seconds"], 3),
        **{name: row[name] for name in _COPIED_FIELDS},
        "gpus": int(gpus) if gpus == int(gpus) else gpus,
        "tasks": placement.get("tasks", 1),
        "preemptible": bool(row["preemptible"]),
        "name": names.pseudonym("name", row["name"]),
        **{kind: names.account(kind, row[kind]) for kind in _NAMES},
        **({"source": row["origin"].partition(":")[0]} if row["origin"] else {}),
    }


def _pseudonyms(path: Path) -> NameMapping:
    """The same name gives the same pseudonym in every export of this installation. The secret key prevents finding
    names by hashing all candidates."""
    key = _key(path)

    def rename(kind: str, name: str) -> str:
        return f"{kind}_{hmac.new(key, f'{kind}:{name}'.encode(), hashlib.sha256).hexdigest()[:10]}"

    return rename


def _key(path: Path) -> bytes:
    """Created at the first use. The hard link is atomic: with concurrent calls, the first key stays."""
    if not path.exists():
        draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        draft.touch(0o600)
        draft.write_bytes(secrets.token_bytes(32))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_bytes()


def _time(seconds: float | None) -> str | None:
    at = to_datetime(seconds)
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def _line(values: Mapping[str, Any]) -> str:
    return json.dumps(values, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True)
class SacctImportRequest:
    """Output of `sacct` with its header, and the mapping of its accounts and users."""

    text: str
    delimiter: str = "|"
    projects: Mapping[str, str] = field(default_factory=dict)  # by account; `*`: for all other accounts
    users: Mapping[str, str] = field(default_factory=dict)  # by Unix name


@dataclass(frozen=True, slots=True)
class HistoryImportResult:
    jobs: int  # new
    known: int  # imported earlier
    skipped: Mapping[str, int]
    accounts: Sequence[str]  # created for users without an account


def import_slurm_history(
    context: Context, caller: Caller, import_request: SacctImportRequest
) -> HistoryImportResult:
    """Imports nothing if an account has no project. Leaves out the jobs that this Heliostat submitted to Slurm. A
    repeated import changes nothing. Admins only."""
    require_admin(caller.user)
    reader = make_sacct_reader(ZoneInfo(context.settings.server.effective_time_zone), import_request.delimiter)
    found = list(reader.read_jobs(import_request.text.split("\n")))
    past = _without_own_jobs(context, found)
    skipped = {_OWN_JOBS: len(found) - len(past)} if len(past) < len(found) else {}
    projects = _projects(context, {job.account for job in past}, import_request.projects)
    users, created = _users(context, caller, {job.user for job in past}, import_request.users)
    imported = [ImportedJob(_job(job, users[job.user], projects[job.account]), job.usage) for job in past]
    added, remaining = 0, iter(imported)
    while part := list(islice(remaining, _BATCH_SIZE)):
        added += context.store.write(lambda tx, part=part: add_imported_jobs(tx, part))  # type: ignore[misc]
    result = HistoryImportResult(added, len(past) - added, {**reader.skipped_counts, **skipped}, created)
    if added or created:
        detail = {"jobs": result.jobs, "known": result.known, "accounts": len(created)}
        now = context.now()
        context.store.write(
            lambda tx: accounts.add_audit_entry(tx, caller, "history.import", "slurm", detail, now)
        )
    return result


def _without_own_jobs(context: Context, past: Sequence[PastJob]) -> list[PastJob]:
    """Users can give a job any comment: it must also be a job of that user, from the same time."""
    numbers = {job_id_of_attempt(job.heliostat_attempt) for job in past if job.heliostat_attempt}
    with context.store.read() as conn:
        ours = get_jobs_without_spec(conn, numbers)
    return [job for job in past if not (job.heliostat_attempt and _is_own(job, ours))]


def _is_own(past: PastJob, ours: Mapping[JobId, Job]) -> bool:
    job = ours.get(job_id_of_attempt(past.heliostat_attempt or ""))
    if job is None or job.unix_user != past.user:
        return False
    until = job.ended_at or past.submitted_at
    return job.submitted_at - _MAX_CLOCK_DIFFERENCE <= past.submitted_at <= until + _MAX_CLOCK_DIFFERENCE


def _projects(context: Context, slurm_accounts: Iterable[str], chosen: Mapping[str, str]) -> dict[str, str]:
    """The project of each account: the chosen one, else the one with the same name, else the one for `*`."""
    with context.store.read() as conn:
        known = {project.name for project in accounts.list_projects(conn)}
    if unknown := sorted(set(chosen.values()) - known):
        raise Invalid(
            f"There is no project {safe_repr(unknown[0])}.",
            "Create it: helio project create.",
            fields={"projects": f"{safe_repr(unknown[0])} does not exist"},
        )
    project_by_account: dict[str, str] = {}
    for account in slurm_accounts:
        same = account if account in known else None
        if project := chosen.get(account) or same or chosen.get(_OTHERS):
            project_by_account[account] = project
    if missing := sorted(set(slurm_accounts) - project_by_account.keys()):
        names = ", ".join(map(safe_repr, missing[:_MAX_LISTED]))
        more = f" and {len(missing) - _MAX_LISTED} more" if len(missing) > _MAX_LISTED else ""
        raise Invalid(
            f"No project is given for the accounts {names}{more}.",
            "Name one for each with --project ACCOUNT=PROJECT, or for all others with --project '*=PROJECT'.",
            fields={"projects": f"none for {names}"},
        )
    return project_by_account


def _users(
    context: Context, caller: Caller, names: Iterable[str], chosen: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """The account for each name, and the names of created accounts."""
    with context.store.read() as conn:
        by_unix = {user.unix_user: user.name for user in accounts.list_users(conn) if user.unix_user}
        without_unix_user = {user.name for user in accounts.list_users(conn) if user.unix_user is None}
    if unknown := sorted(set(chosen.values()) - set(by_unix.values()) - without_unix_user):
        problem = f"{safe_repr(unknown[0])} does not exist"
        raise Invalid(f"There is no user {safe_repr(unknown[0])}.", "`helio user list`", fields={"users": problem})
    account_names: dict[str, str] = {}
    created: list[str] = []
    for name in sorted(names):
        known = chosen.get(name) or by_unix.get(name) or (name if name in without_unix_user else None)
        if known is None and (known := _admitted_account(context, name)):
            created.append(known)
        if known is None:
            known, is_new = context.store.write(lambda tx, name=name: _placeholder_account(tx, context, name))  # type: ignore[misc]
            created += [known] if is_new else []
        account_names[name] = known
    return account_names, created


def _admitted_account(context: Context, name: str) -> str | None:
    """The account of a Unix user of this server, created as at their first login; None: not admitted."""
    unix = context.authenticator.unix_accounts.find_by_name(name)
    if unix is None or not context.settings.auth.admit_local_users or unix.name != name:
        return None
    try:
        return context.authenticator.authenticate_peer(unix.uid).name
    except HeliostatError:
        return None


def _placeholder_account(tx: Transaction, context: Context, name: str) -> tuple[str, bool]:
    """An inactive account that only has a name: no user can log in to it, and no job can run as it."""
    account_name = name if is_account_name(name) else "_" + re.sub(r"[^a-z0-9_.-]", "_", name.lower())[:31]
    user = accounts.find_user(tx.conn, account_name)
    if user is not None and user.unix_user is not None:  # another user has this name here
        account_name = f"{account_name[:26]}.slurm"
        user = accounts.find_user(tx.conn, account_name)
    if user is not None:
        return account_name, False
    accounts.add_user(tx, User(account_name, Role.USER, None, False, context.now()))
    return account_name, True


def _job(past: PastJob, user: str, project: str) -> Job:
    """Without an id."""
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
    """One per node if the resources divide evenly; otherwise 1, so that the totals stay correct."""
    count = len(past.nodes)
    is_even = past.started_at is not None and past.cpus % max(count, 1) == past.gpus % max(count, 1) == 0
    return count if count > 1 and is_even else 1
