"""Job submission: checks, defaults, idempotency keys, one transaction per submission."""

import hashlib
import json
import pwd
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice

from sqlalchemy import Connection, bindparam, insert, select

from heliostat.engines.contract import ChecksRequests
from heliostat.errors import Conflict, ErrorCollector, Invalid, TooLarge
from heliostat.models import Caller, Dependency, Job, JobId, JobRequest, JobSpec, User
from heliostat.models.provenance import SourceCode
from heliostat.runtimes.container_policy import (
    ContainerPolicy,
    JobOwner,
    make_container_policy,
    resolve_container_request,
)
from heliostat.services.accounts.quotas import check_queued_gpu_quota
from heliostat.services.accounts.required_accounts import require_unix_user, resolve_project
from heliostat.services.cluster.reservations import check_job_reservations
from heliostat.services.context import Context
from heliostat.services.environments.images import resolve_image_names
from heliostat.services.environments.requests import (
    EnvironmentRequest,
    attach_environments,
    prepare_environment_requests,
)
from heliostat.services.jobs.dependencies import link_dependencies
from heliostat.services.jobs.drafts import JobDraftContext, draft_job
from heliostat.services.jobs.uploads import check_uploads
from heliostat.services.notifications import check_notify_requests
from heliostat.store import dependencies, job_writes, provenance, schema
from heliostat.store import jobs as stored
from heliostat.store.database import IdAllocator, Transaction
from heliostat.store.timestamps import to_timestamp


@dataclass(frozen=True, slots=True)
class SubmissionResult:
    job_ids: tuple[JobId, ...]
    array_ids: tuple[int, ...]
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class JobPreview:
    count: int
    jobs: tuple[Job, ...]  # one of each request: the first element of an array


def submit_jobs(
    context: Context,
    caller: Caller,
    requests: Sequence[JobRequest],
    key: str | None = None,
    about: str | None = None,
) -> SubmissionResult:
    """Submits all jobs or none. With an idempotency key, a repeated request returns the jobs of the first one."""
    return context.store.write(prepare_submission(context, caller, requests, key, about))


def preview_jobs(context: Context, caller: Caller, requests: Sequence[JobRequest]) -> JobPreview:
    """Makes all checks of a submission and stores nothing. Thousands of jobs are checked outside of the writer,
    and a user has one preview at a time, so that it delays no changes of others."""
    with context.preview_limit.acquire(caller.user.name):
        prepared = _prepare_jobs(context, caller, requests)
        with context.store.read() as conn:
            jobs = prepared.check(conn, IdAllocator(conn))[0].jobs
        firsts = [group[:1] for group in _grouped(requests, jobs)]
        return JobPreview(len(jobs), _attach_and_roll_back(prepared, firsts))


def _attach_and_roll_back(prepared: "_PreparedJobs", groups: Sequence[Sequence[Job]]) -> tuple[Job, ...]:
    def change(tx: Transaction) -> None:
        raise _RolledBack(prepared.attach_environments(tx, groups))

    try:
        prepared.context.store.write(change)
    except _RolledBack as rolled_back:
        return rolled_back.jobs
    raise AssertionError("the change always raises")


class _RolledBack(Exception):
    def __init__(self, jobs: tuple[Job, ...]) -> None:
        self.jobs = jobs


def prepare_submission(
    context: Context,
    caller: Caller,
    requests: Sequence[JobRequest],
    key: str | None = None,
    about: str | None = None,
) -> Callable[[Transaction], SubmissionResult]:
    """Make all checks that need no transaction; returns the change to write.

    With a key, `about` identifies the request; None: all its fields do.
    """
    user, digest = caller.user, _digest(requests, about) if key else ""
    prepared = _prepare_jobs(context, caller, requests)

    def is_same(stored_digest: str) -> bool:
        """The current form of the digest, or that of earlier versions."""
        return stored_digest == digest or stored_digest == _digest(requests, None)

    def change(tx: Transaction) -> SubmissionResult:
        if key and (earlier := _find_earlier_result(tx, user.name, key, is_same)):
            return earlier
        # After the lookup of the key: a repeated request gets its jobs even if they have filled the queue.
        submitted, already_met = prepared.check(tx.conn, tx.ids)
        jobs = prepared.attach_environments(tx, _grouped(requests, submitted.jobs))
        submitted = replace(submitted, jobs=jobs)
        job_writes.add_jobs(tx, submitted.jobs)
        dependencies.add_dependencies(tx, submitted.jobs, already_met)
        _add_provenance(context, tx, requests, submitted.jobs)
        if key:
            _store_key(tx, user.name, key, digest, submitted)
        return submitted

    return change


@dataclass(frozen=True, slots=True)
class _PreparedJobs:
    """Jobs that have passed all checks that need no database."""

    context: Context
    caller: Caller
    requests: Sequence[JobRequest]
    drafts: Sequence[Job]
    environment_requests: Mapping[int, Sequence[EnvironmentRequest]]
    queue_full: Conflict | None

    def check(self, conn: Connection, ids: IdAllocator) -> tuple[SubmissionResult, set[Dependency]]:
        """Make the other checks. Returns the jobs, and which dependencies are already met."""
        if self.queue_full or _is_queue_full_now(self.context, conn, self.caller.user, self.requests):
            raise _queue_full_error(self.context)
        numbered = _with_ids(ids, self.requests, self.drafts)
        submitted, already_met = _with_dependencies(conn, self.caller, self.requests, numbered)
        check_queued_gpu_quota(self.context, conn, submitted.jobs)
        return submitted, already_met

    def attach_environments(self, tx: Transaction, groups: Sequence[Sequence[Job]]) -> tuple[Job, ...]:
        """The jobs of each request with their environment, which may have to be built first."""
        if not self.environment_requests:
            return tuple(job for group in groups for job in group)
        return tuple(attach_environments(self.context, tx, self.environment_requests, groups))


def _prepare_jobs(context: Context, caller: Caller, requests: Sequence[JobRequest]) -> _PreparedJobs:
    requests = resolve_image_names(context, caller, requests)
    drafts = draft_jobs(context, caller, requests)
    check_notify_requests(context, caller, requests)
    environment_requests = prepare_environment_requests(context, caller, requests, drafts)
    queue_full = _queue_full(context, caller.user, requests)
    return _PreparedJobs(context, caller, requests, drafts, environment_requests, queue_full)


def _digest(requests: Sequence[JobRequest], about: str | None) -> str:
    """Of the request without its code: changed code does not make it another request."""
    return hashlib.sha256((about or repr(list(requests))).encode()).hexdigest()


def draft_jobs(context: Context, caller: Caller, requests: Sequence[JobRequest]) -> list[Job]:
    """One job without id for each request. Raises if the caller lacks permission or no node could ever run it."""
    user = caller.user
    projects = _known_projects(context, user, requests)
    draft_context = JobDraftContext(
        user=user,
        unix_user=require_unix_user(user),
        nodes=context.node_inventory.nodes(),
        projects=projects,
        data_classes=_data_classes(context, projects.values()),
        now=context.now(),
        default_time_limit_seconds=context.settings.queue.default_time_limit_seconds,
        max_time_limit_seconds=context.settings.queue.max_time_limit_seconds,
        max_grace_seconds=context.settings.queue.max_grace_seconds,
        are_nodes_known=_are_nodes_known(context),
    )
    requests = resolve_containers(context, user, projects, resolve_image_names(context, caller, requests))
    _check_size(context, requests)
    check_uploads(context, user, requests)
    drafts = _draft_all(draft_context, requests)
    check_job_reservations(context, caller, drafts)
    _check_with_engine(context, drafts, draft_context.data_classes)
    if not user.is_admin or not any(request.priority for request in requests):
        return drafts
    return [replace(draft, priority_everywhere=True) for draft in drafts]


def _draft_all(draft_context: JobDraftContext, requests: Sequence[JobRequest]) -> list[Job]:
    """Raises one error that names every job that cannot be accepted."""
    drafts: list[Job] = []
    errors = ErrorCollector()
    for index, request in enumerate(requests):
        with _part(errors, requests, index):
            drafts.append(draft_job(draft_context, request))
    errors.raise_errors()
    return drafts


def _are_nodes_known(context: Context) -> bool:
    """An engine with its own queue may be unavailable; it then reports infeasible jobs when it is back."""
    return bool(context.node_inventory.nodes()) or not context.engine.capabilities.has_own_queue


def _check_with_engine(context: Context, drafts: Sequence[Job], data_classes: Mapping[str, int]) -> None:
    """Each distinct request once: thousands of jobs may have the same."""
    if not isinstance(context.engine, ChecksRequests):
        return
    kinds = {
        (job.resources, job.placement, job.time_limit_seconds, job.overtime, job.project, job.priority_class): job
        for job in drafts
    }
    for draft in kinds.values():
        context.engine.check_request(draft, data_classes.get(draft.project, 0))


def _known_projects(context: Context, user: User, requests: Sequence[JobRequest]) -> dict[str | None, str]:
    """The project for each name in the requests; None: the user's default project."""
    known: dict[str | None, str] = {}
    errors = ErrorCollector()
    for index, request in enumerate(requests):
        if request.project not in known:
            with _part(errors, requests, index):
                known[request.project] = resolve_project(context, user, request.project)
    errors.raise_errors()
    return known


def _part(errors: ErrorCollector, requests: Sequence[JobRequest], index: int) -> AbstractContextManager[None]:
    """Errors of one of several jobs name this job."""
    if len(requests) == 1:
        return errors.part("", "")
    name = requests[index].name
    title = f"job {name}" if name else f"job {index + 1} of {len(requests)}"
    return errors.part(f"{title}: ", f"jobs.{index}.")


def _data_classes(context: Context, projects: Iterable[str]) -> dict[str, int]:
    known = context.scheduling_rules.share_accounts().projects
    return {name: known[name].data_class for name in projects if name in known}


def _check_size(context: Context, requests: Sequence[JobRequest]) -> None:
    """Each array element stores its own script and env: a small request must not become gigabytes."""
    if (
        sum(_count(request) * _size(request.spec) for request in requests)
        > context.settings.server.max_request_bytes
    ):
        raise TooLarge(
            f"The expanded jobs are larger than {context.settings.server.max_request_bytes // 2**20} MiB.",
            "Put the script or the values of env into a file and refer to the file.",
        )


def _size(spec: JobSpec) -> int:
    texts = (*spec.command, *spec.env, *spec.env.values(), spec.script or "", spec.workdir or "")
    return sum(map(len, texts))


def _count(request: JobRequest) -> int:
    return len(request.array.indexes) if request.array else 1


def _queue_full(context: Context, user: User, requests: Sequence[JobRequest]) -> Conflict | None:
    limit = context.settings.queue.max_jobs_per_user
    if context.controller.count_unfinished_jobs(user.name) + sum(map(_count, requests)) <= limit:
        return None
    return _queue_full_error(context)


def _is_queue_full_now(context: Context, conn: Connection, user: User, requests: Sequence[JobRequest]) -> bool:
    """Whether concurrent requests of the same user have filled the queue. Counted only near the limit."""
    limit, more = context.settings.queue.max_jobs_per_user, sum(map(_count, requests))
    if context.controller.count_unfinished_jobs(user.name) + more <= limit // 2:
        return False
    return stored.count_unfinished_jobs_of_user(conn, user.name) + more > limit


def _queue_full_error(context: Context) -> Conflict:
    limit = context.settings.queue.max_jobs_per_user
    return Conflict(
        f"You would have more than {limit} unfinished jobs.", "Wait until some have ended.", code="queue_full"
    )


def _with_ids(ids: IdAllocator, requests: Sequence[JobRequest], drafts: Sequence[Job]) -> SubmissionResult:
    jobs: list[Job] = []
    array_ids: list[int] = []
    for request, draft in zip(requests, drafts, strict=True):
        if request.array is None:
            jobs.append(replace(draft, id=ids.allocate("jobs")[0]))
            continue
        array_ids += ids.allocate("arrays")
        numbers = ids.allocate("jobs", len(request.array.indexes))
        jobs += [
            replace(draft, id=number, array_id=array_ids[-1], array_index=index)
            for number, index in zip(numbers, request.array.indexes, strict=True)
        ]
    return SubmissionResult(tuple(job.id for job in jobs), tuple(array_ids), tuple(jobs))


def _with_dependencies(
    conn: Connection, caller: Caller, requests: Sequence[JobRequest], numbered: SubmissionResult
) -> tuple[SubmissionResult, set[Dependency]]:
    if not any(request.after for request in requests):
        return numbered, set()
    linked = link_dependencies(conn, caller, requests, _grouped(requests, numbered.jobs))
    return replace(numbered, jobs=linked.jobs), linked.already_met


def _add_provenance(
    context: Context, tx: Transaction, requests: Sequence[JobRequest], jobs: Sequence[Job]
) -> None:
    if all(request.code is None and request.rerun_of is None for request in requests):
        return
    remaining_jobs = iter(jobs)
    by_code: dict[SourceCode, list[JobId]] = {}
    for request in requests:
        ids = [job.id for job in islice(remaining_jobs, _count(request))]
        if request.rerun_of is not None:
            provenance.add_rerun(tx, ids, request.rerun_of)
        if request.code is not None and context.settings.storage.keep_records:
            by_code.setdefault(request.code, []).extend(ids)
    for code, ids in by_code.items():
        provenance.add_source_code(tx, code, ids)


def _grouped(requests: Sequence[JobRequest], jobs: Sequence[Job]) -> list[list[Job]]:
    """The jobs of each request."""
    remaining = iter(jobs)
    return [list(islice(remaining, _count(request))) for request in requests]


_keys = schema.idempotency_keys
_FIND_KEY = select(_keys.c.digest, _keys.c.job_ids).where(
    _keys.c.user == bindparam("user"), _keys.c.key == bindparam("key")
)


def _find_earlier_result(
    tx: Transaction, user: str, key: str, is_same: Callable[[str], bool]
) -> SubmissionResult | None:
    row = tx.conn.execute(_FIND_KEY, {"user": user, "key": key}).first()
    if row is None:
        return None
    if not is_same(row.digest):
        raise Conflict(
            "This idempotency key was used for another request.", "Use a fresh key for each new request."
        )
    job_ids = json.loads(row.job_ids)
    found = stored.get_jobs(tx.conn, job_ids)
    jobs = tuple(found[job_id] for job_id in job_ids)
    arrays = tuple(sorted({job.array_id for job in jobs if job.array_id is not None}))
    return SubmissionResult(tuple(job_ids), arrays, jobs)


def _store_key(tx: Transaction, user: str, key: str, digest: str, submitted: SubmissionResult) -> None:
    values = {
        "user": user,
        "key": key,
        "digest": digest,
        "job_ids": json.dumps(submitted.job_ids),
        "created_at": to_timestamp(submitted.jobs[0].submitted_at),
    }
    tx.conn.execute(insert(_keys), values)


def resolve_containers(
    context: Context, user: User, projects: Mapping[str | None, str], requests: Sequence[JobRequest]
) -> list[JobRequest]:
    """The requests with complete container settings. `projects`: the project for each name. Raises Invalid."""
    rules = make_container_policy(context.settings)
    uses_containers = any(request.spec.image or request.spec.runtime for request in requests)
    home = _home_of(user.unix_user) if uses_containers else None  # the lookup is slow
    resolved: list[JobRequest] = []
    for request in requests:
        owner = JobOwner(user.name, home, projects[request.project])
        resolved.append(replace(request, spec=_resolved_spec(context, request, owner, rules)))
    return resolved


def _resolved_spec(context: Context, request: JobRequest, owner: JobOwner, rules: ContainerPolicy) -> JobSpec:
    spec, is_own = request.spec, request.spec.image is not None and request.environment is not None
    resolved = resolve_container_request(spec, owner, rules, is_own=is_own)
    if resolved.uses_container and not context.engine.capabilities.runs_containers:
        raise Invalid(
            f"The engine {context.engine.name} does not support containers yet.",
            "Omit image and runtime, and start the container in your script.",
            fields={"image" if spec.image else "runtime": "not supported by this engine"},
        )
    return resolved


def _home_of(unix_user: str | None) -> str | None:
    try:
        return pwd.getpwnam(unix_user or "").pw_dir
    except KeyError:
        return None
