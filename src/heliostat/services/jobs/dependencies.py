"""From the parents a request names to the jobs they are: who may wait for whom, and how many may."""

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

_MOST_ELEMENTS = 10_000  # of an array
_HINT = "You can wait for your own jobs and for those of projects you manage: `helio ps --all` lists them."
JobGroups = Sequence[Sequence[Job]]
"""The jobs of each request: of an array, all its elements."""


@dataclass(frozen=True, slots=True)
class LinkedJobs:
    """The same jobs, each with its parents."""

    jobs: tuple[Job, ...]
    already_met: set[Dependency] = field(default_factory=set)  # whose parent was over before, as it should be


def link_dependencies(
    conn: Connection, caller: Caller, requests: Sequence[JobRequest], groups: JobGroups
) -> LinkedJobs:
    """Raises when a parent does not exist for the caller, has ended otherwise than it should, or waits in turn."""
    if not any(request.after for request in requests):
        return LinkedJobs(tuple(job for group in groups for job in group))
    counts = [len(request.after) for request in requests]
    _refuse_too_many(sum(count * len(group) for count, group in zip(counts, groups, strict=True)), max(counts))
    _refuse_cycles(requests)
    known = _Known(conn, caller, requests, groups)
    _refuse_too_many(*_pairs(requests, groups, known))
    settled: set[Dependency] = set()
    jobs: list[Job] = []
    for request, group in zip(requests, groups, strict=True):
        jobs += _linked_group(request, group, known, settled)
    return LinkedJobs(tuple(jobs), settled)


def dependency_field_name(parent: ParentReference) -> str:
    """The field of the request that names it."""
    return (
        "after_each"
        if parent.each
        else "after"
        if parent.rule is DependencyCondition.OK
        else f"after_{parent.rule}"
    )


class _Known:
    """The jobs that the requests name, found once."""

    def __init__(
        self, conn: Connection, caller: Caller, requests: Sequence[JobRequest], groups: JobGroups
    ) -> None:
        self._conn, self._caller = conn, caller
        self._groups = {name: groups[index] for name, index in _named(requests).items()}
        parents = [parent for request in requests for parent in request.after]
        self._by_id = get_jobs_without_spec(
            conn, {parent.job_id for parent in parents if parent.job_id is not None}
        )
        self._arrays: dict[int, Sequence[Job]] = {}

    def of(self, parent: ParentReference) -> Sequence[Job]:
        if parent.job_id is not None:
            found: Sequence[Job] = [job] if (job := self._by_id.get(parent.job_id)) else []
            return self._if_allowed(parent, found, f"There is no job {parent.job_id} that you can wait for.")
        if parent.array_id is not None:
            found = self._array(parent.array_id)
            return self._if_allowed(parent, found, f"There is no array {parent.array_id} that you can wait for.")
        return self._groups[parent.reference]

    def _if_allowed(self, parent: ParentReference, found: Sequence[Job], refusal: str) -> Sequence[Job]:
        """The same words whether it exists or not: who may not look into it cannot wait for it either way."""
        if not found or not all(may_inspect(self._caller.user, job) for job in found[:1]):
            raise Invalid(
                refusal, _HINT, fields={dependency_field_name(parent): f"there is no {parent.reference} for you"}
            )
        return found

    def _array(self, array_id: int) -> Sequence[Job]:
        if array_id not in self._arrays:
            wanted = stored.JobFilter(array_id=array_id)
            self._arrays[array_id] = stored.list_jobs(self._conn, wanted, _MOST_ELEMENTS)[::-1]
        return self._arrays[array_id]


def _named(requests: Sequence[JobRequest]) -> dict[str, int]:
    """Which request each name in `after` means."""
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
            message, "Give each a name of its own.", fields={dependency_field_name(parent): "is not clear"}
        )
    raise Invalid(
        f"No job of this request is named {name}.",
        "Name a job by its number (12), an array as array:5, and a job of the same request by its name.",
        fields={dependency_field_name(parent): f"there is no {name} in this request"},
    )


def _is_name(parent: ParentReference) -> bool:
    return parent.job_id is None and parent.array_id is None


def _refuse_cycles(requests: Sequence[JobRequest]) -> None:
    """Only jobs of one request can wait for one another: a number is there only once its job is."""
    named = _named(requests)
    graph = {
        index: [named[parent.reference] for parent in request.after if _is_name(parent)]
        for index, request in enumerate(requests)
    }
    cycle = find_cycle(graph)
    if cycle is None:
        return
    names = [requests[index].name or str(index) for index in cycle]
    shown = names if len(names) <= 8 else [*names[:6], "…", names[-1]]
    raise Invalid(
        f"These jobs wait for one another: {' → '.join(shown)}.",
        "None of them could ever start: take one of these steps away.",
        code="cycle",
        fields={"after": "leads back to the job itself"},
    )


def _pairs(requests: Sequence[JobRequest], groups: JobGroups, known: _Known) -> tuple[int, int]:
    """Of a job and one it waits for: in all, and of the job that has most."""
    counts = [sum(1 if one.each else len(known.of(one)) for one in request.after) for request in requests]
    return sum(count * len(group) for count, group in zip(counts, groups, strict=True)), max(counts)


def _refuse_too_many(pairs: int, most: int) -> None:
    """Asked before anything is looked up, and again when it is known how large the arrays are."""
    message = ""
    if most > MAX_PARENTS:
        message = f"A job may wait for {MAX_PARENTS} others, not for {most}."
    elif pairs > MAX_DEPENDENCIES_PER_REQUEST:
        message = f"The request has {pairs} dependencies; the limit is {MAX_DEPENDENCIES_PER_REQUEST}."
    if message:
        raise Invalid(message, _BETWEEN, fields={"after": "too many"})


_BETWEEN = "Put a small job in between that waits for all the parents, and let the others wait for that one."


def _linked_group(
    request: JobRequest, group: Sequence[Job], known: _Known, settled: set[Dependency]
) -> Iterable[Job]:
    shared = [(parent.rule, job) for parent in request.after if not parent.each for job in known.of(parent)]
    by_index = [(parent, _by_index(parent, known)) for parent in request.after if parent.each]
    common = _dependencies(shared, settled)
    for child in group:
        own = [(parent.rule, _element(parent, child, elements)) for parent, elements in by_index]
        after = tuple(dict.fromkeys([*common, *_dependencies(own, settled)])) if own else common
        yield replace(child, after=after, parents_left=sum(one not in settled for one in after))


def _dependencies(
    parents: Iterable[tuple[DependencyCondition, Job]], settled: set[Dependency]
) -> tuple[Dependency, ...]:
    found: dict[Dependency, None] = {}
    for rule, parent in parents:
        one = Dependency(parent.id, rule)
        found[one] = None
        if parent.is_terminal:
            _refuse_if_broken(rule, parent)
            settled.add(one)
    return tuple(found)


def _refuse_if_broken(rule: DependencyCondition, parent: Job) -> None:
    if rule.is_met_by(parent.state):
        return
    wanted = "completed" if rule is DependencyCondition.OK else "failed"
    raise Conflict(
        f"Job {parent.id} {describe_end(parent.state)}: what waits until it has {wanted} would never start.",
        "Leave it out, or let the job start however that one ended: --after-any.",
        code="parent_ended",
        fields={
            dependency_field_name(
                ParentReference(str(parent.id), rule)
            ): f"job {parent.id} {describe_end(parent.state)}"
        },
    )


def _by_index(parent: ParentReference, known: _Known) -> Mapping[int | None, Job]:
    return {job.array_index: job for job in known.of(parent)}


def _element(parent: ParentReference, child: Job, elements: Mapping[int | None, Job]) -> Job:
    if child.array_index is None or None in elements:
        raise Invalid(
            "after_each leads from each element of an array to the one of the same index of another array.",
            "Name an array, as array:5, and submit one with --array; or use after.",
            fields={"after_each": "is for arrays"},
        )
    if child.array_index not in elements:
        raise Invalid(
            f"{parent.reference} has no element {child.array_index} to wait for.",
            "Submit an array with indexes that the other has too.",
            fields={"after_each": f"there is no element {child.array_index}"},
        )
    return elements[child.array_index]
