"""Dependencies of submitted jobs: resolving parent references, permissions, cycles and limits."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection

from heliostat.errors import Conflict, Invalid
from heliostat.models import Caller, Dependency, DependencyCondition, Job, JobRequest, ParentReference
from heliostat.models.dependencies import MAX_DEPENDENCIES_PER_REQUEST, MAX_PARENTS, describe_end, find_cycle
from heliostat.services.permissions import may_inspect
from heliostat.store import jobs as stored
from heliostat.store.jobs import get_jobs_without_spec

_MAX_ELEMENTS = 10_000  # of an array
_HINT = "A job can depend on your own jobs and on jobs of projects you manage: `helio ps --all` lists them."
JobGroups = Sequence[Sequence[Job]]
"""The jobs of each request; for an array, all its elements."""


@dataclass(frozen=True, slots=True)
class LinkedJobs:
    """The same jobs, each with its parents."""

    jobs: tuple[Job, ...]
    already_met: set[Dependency] = field(default_factory=set)  # the parent had already ended in the required way


def link_dependencies(
    conn: Connection, caller: Caller, requests: Sequence[JobRequest], groups: JobGroups
) -> LinkedJobs:
    """Raises if the caller may not see a parent, a parent has ended in another way, or the requests form a
    cycle."""
    if not any(request.after for request in requests):
        return LinkedJobs(tuple(job for group in groups for job in group))
    counts = [len(request.after) for request in requests]
    _refuse_too_many(sum(count * len(group) for count, group in zip(counts, groups, strict=True)), max(counts))
    _refuse_cycles(requests)
    parent_jobs = _ParentJobs(conn, caller, requests, groups)
    _refuse_too_many(*_count_dependencies(requests, groups, parent_jobs))
    already_met: set[Dependency] = set()
    jobs: list[Job] = []
    for request, group in zip(requests, groups, strict=True):
        jobs += _link_group(request, group, parent_jobs, already_met)
    return LinkedJobs(tuple(jobs), already_met)


def dependency_field_name(parent: ParentReference) -> str:
    """The field of the request that contains this reference."""
    return (
        "after_each"
        if parent.each
        else "after"
        if parent.rule is DependencyCondition.OK
        else f"after_{parent.rule}"
    )


class _ParentJobs:
    """The jobs that the requests refer to, each looked up once."""

    def __init__(
        self, conn: Connection, caller: Caller, requests: Sequence[JobRequest], groups: JobGroups
    ) -> None:
        self._conn, self._caller = conn, caller
        self._groups = {name: groups[index] for name, index in _indexes_by_name(requests).items()}
        parents = [parent for request in requests for parent in request.after]
        self._by_id = get_jobs_without_spec(
            conn, {parent.job_id for parent in parents if parent.job_id is not None}
        )
        self._arrays: dict[int, Sequence[Job]] = {}

    def of(self, parent: ParentReference) -> Sequence[Job]:
        if parent.job_id is not None:
            jobs: Sequence[Job] = [job] if (job := self._by_id.get(parent.job_id)) else []
            return self._if_allowed(parent, jobs, f"There is no job {parent.job_id} that your job can depend on.")
        if parent.array_id is not None:
            jobs = self._array(parent.array_id)
            return self._if_allowed(
                parent, jobs, f"There is no array {parent.array_id} that your job can depend on."
            )
        return self._groups[parent.reference]

    def _if_allowed(self, parent: ParentReference, jobs: Sequence[Job], refusal: str) -> Sequence[Job]:
        """The same message whether the job exists or not, so that it reveals nothing about jobs of others."""
        if not jobs or not all(may_inspect(self._caller.user, job) for job in jobs[:1]):
            raise Invalid(
                refusal, _HINT, fields={dependency_field_name(parent): f"{parent.reference} is not available"}
            )
        return jobs

    def _array(self, array_id: int) -> Sequence[Job]:
        if array_id not in self._arrays:
            elements = stored.list_jobs(self._conn, stored.JobFilter(array_id=array_id), _MAX_ELEMENTS)
            self._arrays[array_id] = elements[::-1]
        return self._arrays[array_id]


def _indexes_by_name(requests: Sequence[JobRequest]) -> dict[str, int]:
    """The index of the request for each name in `after`."""
    indexes: defaultdict[str, list[int]] = defaultdict(list)
    for index, request in enumerate(requests):
        if request.name is not None:
            indexes[request.name].append(index)
    return {
        parent.reference: _only_one(indexes.get(parent.reference, []), parent)
        for request in requests
        for parent in request.after
        if _is_name(parent)
    }


def _only_one(indexes: Sequence[int], parent: ParentReference) -> int:
    if len(indexes) == 1:
        return indexes[0]
    name = ascii(parent.reference[:60])
    if indexes:
        message = f"{len(indexes)} jobs of this request are named {name}."
        raise Invalid(
            message, "Give each job a unique name.", fields={dependency_field_name(parent): "is ambiguous"}
        )
    raise Invalid(
        f"No job of this request is named {name}.",
        "Refer to a job by its id (12), to an array as array:5, and to a job of the same request by its name.",
        fields={dependency_field_name(parent): f"there is no {name} in this request"},
    )


def _is_name(parent: ParentReference) -> bool:
    return parent.job_id is None and parent.array_id is None


def _refuse_cycles(requests: Sequence[JobRequest]) -> None:
    """A cycle is possible only within one request: other parents exist already."""
    indexes_by_name = _indexes_by_name(requests)
    graph = {
        index: [indexes_by_name[parent.reference] for parent in request.after if _is_name(parent)]
        for index, request in enumerate(requests)
    }
    cycle = find_cycle(graph)
    if cycle is None:
        return
    names = [requests[index].name or str(index) for index in cycle]
    shown = names if len(names) <= 8 else [*names[:6], "…", names[-1]]
    raise Invalid(
        f"These jobs wait for one another: {' → '.join(shown)}.",
        "None of them could ever start: remove one of these dependencies.",
        code="cycle",
        fields={"after": "forms a cycle"},
    )


def _count_dependencies(
    requests: Sequence[JobRequest], groups: JobGroups, parent_jobs: _ParentJobs
) -> tuple[int, int]:
    """The number of dependencies: in total, and the maximum of one job."""
    counts = [
        sum(1 if parent.each else len(parent_jobs.of(parent)) for parent in request.after) for request in requests
    ]
    return sum(count * len(group) for count, group in zip(counts, groups, strict=True)), max(counts)


def _refuse_too_many(total: int, max_parents: int) -> None:
    """Called before any lookup, and again when the sizes of the arrays are known."""
    message = ""
    if max_parents > MAX_PARENTS:
        message = f"A job has {max_parents} dependencies; the limit is {MAX_PARENTS}."
    elif total > MAX_DEPENDENCIES_PER_REQUEST:
        message = f"The request has {total} dependencies; the limit is {MAX_DEPENDENCIES_PER_REQUEST}."
    if message:
        raise Invalid(message, _TOO_MANY_HINT, fields={"after": "too many"})


_TOO_MANY_HINT = "Add a small job that depends on all the parents, and let the other jobs depend on it."


def _link_group(
    request: JobRequest, group: Sequence[Job], parent_jobs: _ParentJobs, already_met: set[Dependency]
) -> Iterable[Job]:
    shared = [(parent.rule, job) for parent in request.after if not parent.each for job in parent_jobs.of(parent)]
    by_index = [(parent, _by_index(parent, parent_jobs)) for parent in request.after if parent.each]
    common = _dependencies(shared, already_met)
    for child in group:
        own = [(parent.rule, _element(parent, child, elements)) for parent, elements in by_index]
        after = tuple(dict.fromkeys([*common, *_dependencies(own, already_met)])) if own else common
        yield replace(child, after=after, parents_left=sum(dependency not in already_met for dependency in after))


def _dependencies(
    parents: Iterable[tuple[DependencyCondition, Job]], already_met: set[Dependency]
) -> tuple[Dependency, ...]:
    dependencies: dict[Dependency, None] = {}
    for rule, parent in parents:
        dependency = Dependency(parent.id, rule)
        dependencies[dependency] = None
        if parent.is_terminal:
            _refuse_if_broken(rule, parent)
            already_met.add(dependency)
    return tuple(dependencies)


def _refuse_if_broken(rule: DependencyCondition, parent: Job) -> None:
    if rule.is_met_by(parent.state):
        return
    required = "completed" if rule is DependencyCondition.OK else "failed"
    raise Conflict(
        f"Job {parent.id} {describe_end(parent.state)}: a job that needs it {required} would never start.",
        "Remove the dependency, or use --after-any to start the job however its parent ended.",
        code="parent_ended",
        fields={
            dependency_field_name(
                ParentReference(str(parent.id), rule)
            ): f"job {parent.id} {describe_end(parent.state)}"
        },
    )


def _by_index(parent: ParentReference, parent_jobs: _ParentJobs) -> Mapping[int | None, Job]:
    return {job.array_index: job for job in parent_jobs.of(parent)}


def _element(parent: ParentReference, child: Job, elements: Mapping[int | None, Job]) -> Job:
    if child.array_index is None or None in elements:
        raise Invalid(
            "after_each links each element of an array to the element with the same index of another array.",
            "Refer to an array, as array:5, and submit an array with --array; or use after.",
            fields={"after_each": "is for arrays"},
        )
    if child.array_index not in elements:
        raise Invalid(
            f"{parent.reference} has no element {child.array_index}.",
            "Submit an array whose indexes exist in the other array too.",
            fields={"after_each": f"there is no element {child.array_index}"},
        )
    return elements[child.array_index]
