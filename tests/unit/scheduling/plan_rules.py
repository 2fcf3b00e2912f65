"""Rules that every plan must follow; each rule yields its violations."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import combinations

from heliostat.models import Job, NodeState, Quota, Reservation
from heliostat.scheduling.quotas import find_quota, quota_keys
from heliostat.scheduling.snapshot import Plan, PlannedStart, PlannedStop
from unit.scheduling.builders import NOW
from unit.scheduling.random_cases import Case
from unit.scheduling.reference_cluster import ReferenceCluster, is_allowed


def find_violations(case: Case, made: Plan) -> list[str]:
    """All violations of the plan."""
    rules = (_overfull, _misplaced, _incomplete, _over_quota, _over_array, _in_reservations, *_STOPS)
    return [words for rule in rules for words in rule(case, made)]


def _overfull(case: Case, made: Plan) -> Iterator[str]:
    cluster = case.cluster()
    before = set(cluster.overfull())
    for start in made.starts:
        cluster.put(start.job, start.places)
    yield from set(cluster.overfull()) - before
    if len({start.job.id for start in made.starts}) < len(made.starts):
        yield "a job starts twice"


def _misplaced(case: Case, made: Plan) -> Iterator[str]:
    """Labels, data class, type, memory, state of node and device."""
    nodes = {node.name: node for node in case.nodes}
    for start in made.starts:
        requested, kinds = start.job.resources, set()
        for place in start.places:
            node = nodes[place.node]
            if node.state is not NodeState.UP or not is_allowed(start.job, case.data_class(start.job), node):
                yield f"job {start.job.id} may not be on {node.name}"
            for device in (device for device in node.devices if device.uuid in place.devices):
                kinds.add((device.type, device.memory_mib))
                right_type = (requested.gpu_type or device.type).lower() == device.type.lower()
                if (
                    not device.is_available
                    or not right_type
                    or device.memory_mib < (requested.gpu_memory_mib or 0)
                ):
                    yield f"job {start.job.id} may not have {device.uuid}"
            if not set(place.devices) <= {device.uuid for device in node.devices}:
                yield f"job {start.job.id} has devices of another node"
        if len(kinds) > 1 or (kinds and start.gpu_type not in {kind[0] for kind in kinds}):
            yield f"job {start.job.id} has devices of several kinds"


def _incomplete(case: Case, made: Plan) -> Iterator[str]:
    for start in made.starts:
        requested, placement = start.job.resources, start.job.placement
        if len(start.places) != placement.tasks:
            yield f"job {start.job.id} starts {len(start.places)} of {placement.tasks} tasks"
        if any(len(set(place.devices)) != requested.device_count for place in start.places):
            yield f"job {start.job.id} has too few devices"
        if placement.layout == "spread" and len({place.node for place in start.places}) < placement.tasks:
            yield f"job {start.job.id} is not spread"


def _over_quota(case: Case, made: Plan) -> Iterator[str]:
    """No account with a new start exceeds its quota."""
    held, starting = Counter[tuple[str, str]](), set()
    for job, is_new in [(job, False) for job in case.running] + [(start.job, True) for start in made.starts]:
        gpus = case.gpus(job)
        for scope in quota_keys(job.user, job.project, case.accounts):
            held[scope] += gpus  # type: ignore[assignment]
            if is_new and gpus:
                starting.add(scope)
    for scope in starting:
        quota: Quota = find_quota(scope, case.accounts)
        if quota.running_gpus is not None and held[scope] > quota.running_gpus + 1e-6:
            yield f"{scope} holds {held[scope]} of {quota.running_gpus}"


def _over_array(case: Case, made: Plan) -> Iterator[str]:
    started = {start.job.array_id for start in made.starts if start.job.array_limit}
    counts = Counter(job.array_id for job in (*case.running, *(start.job for start in made.starts)))
    limits = {start.job.array_id: start.job.array_limit for start in made.starts}
    yield from (f"array {number}" for number in started if counts[number] > (limits[number] or 0))


def _in_reservations(case: Case, made: Plan) -> Iterator[str]:
    for reservation in case.reservations:
        foreign = [start for start in made.starts if _overlaps(case, start, reservation)]
        if reservation.gpus_per_node is None:
            yield from (f"job {start.job.id} runs into {reservation.name}" for start in foreign)
        else:
            for name in reservation.nodes:
                yield from _too_few_left(case, foreign, reservation, name)


def _overlaps(case: Case, start: PlannedStart, reservation: Reservation) -> bool:
    """Whether a start of another project is on its nodes and runs into its period."""
    if reservation.project is not None and start.job.project == reservation.project:
        return False
    if not {place.node for place in start.places} & set(reservation.nodes):
        return False
    end = NOW.timestamp() + case.limit(start.job)
    return reservation.ends_at > NOW and reservation.starts_at.timestamp() < end


def _too_few_left(case: Case, foreign: list[PlannedStart], reservation: Reservation, name: str) -> Iterator[str]:
    """Other projects must leave as many GPUs of the node as are reserved."""
    node = next(node for node in case.nodes if node.name == name)
    mine = {uuid for start in foreign for place in start.places if place.node == name for uuid in place.devices}
    if not mine:
        return
    held = set(mine)
    for job in case.running:
        if job.project != reservation.project and _end(case, job) > reservation.starts_at.timestamp():
            held.update(uuid for place in job.task_placements if place.node == name for uuid in place.devices)
    usable = [device for device in node.devices if device.is_available and device.uuid not in held]
    if len(usable) < (reservation.gpus_per_node or 0):
        yield f"{len(usable)} of {reservation.gpus_per_node} GPUs are left for {reservation.name} on {name}"


def _end(case: Case, job: Job) -> float:
    assert job.started_at is not None
    end = job.started_at.timestamp() + case.limit(job)
    if job.stop_requested is not None:
        return min(end, NOW.timestamp() + job.spec.grace_seconds)
    return max(end, NOW.timestamp() + 1) if job.overtime or job.time_limit_seconds is None else end


def _stopped_wrongly(case: Case, made: Plan) -> Iterator[str]:
    waiting = {job.id: job for job in case.pending}
    for stop in made.stops:
        rank = case.policy.find_priority_class(waiting[stop.for_job_id].priority_class).rank
        if not may_stop(case, stop.job, rank):
            yield f"job {stop.job.id} may not be stopped for job {stop.for_job_id}"
        if (stop.kind == "overtime") != is_over_time(stop.job):
            yield f"job {stop.job.id} is stopped for {stop.kind}"
    for number in {stop.for_job_id for stop in made.stops}:
        yield from _stopped_in_vain(case, made, waiting[number])


def _stopped_in_vain(case: Case, made: Plan, waiting: Job) -> Iterator[str]:
    """The stopped jobs must free enough, and fewer must not. The latter holds for the first blocked job only: for
    later ones, bookings reduce what is free."""
    victims = [stop for stop in made.stops if stop.for_job_id == waiting.id]
    earlier = [stop for stop in made.stops if stop.for_job_id != waiting.id]
    cluster = after(case, made, earlier)
    if not _fits_without(case, cluster, waiting, victims):
        yield f"job {waiting.id} does not fit even without {[stop.job.id for stop in victims]}"
    if earlier or _is_approximate(case) or not _has_booking(made, waiting):
        return
    for fewer in combinations(victims, len(victims) - 1):
        if _fits_without(case, cluster, waiting, fewer):
            yield f"job {waiting.id} would fit without stopping all of {[stop.job.id for stop in victims]}"


def _has_booking(made: Plan, job: Job) -> bool:
    return any(head.job_id == job.id for head in made.booked_starts)


def _is_approximate(case: Case) -> bool:
    """Cases in which a plan does not count all that a stopped job would free: fractions of devices, and nodes with
    some reserved GPUs. There it may stop one more job, or another one."""
    return any(0 < job.resources.gpus < 1 for job in case.jobs) or any(
        reservation.gpus_per_node for reservation in case.reservations
    )


def _stopped_too_costly(case: Case, made: Plan) -> Iterator[str]:
    """No single other job with less lost work would have been enough."""
    waiting = {job.id: job for job in case.pending}
    if (
        len({stop.for_job_id for stop in made.stops}) != 1
        or case.policy.backfill_reservations > 1
        or _is_approximate(case)
    ):
        return
    job = waiting[made.stops[0].for_job_id]
    if not _has_booking(made, job):
        return
    rank, lost = (
        case.policy.find_priority_class(job.priority_class).rank,
        sum(lost_work(stop.job) for stop in made.stops),
    )
    cluster = after(case, made, ())
    for other in case.running:
        stop = PlannedStop(other, "preempt", "", job.id)
        if may_stop(case, other, rank) and lost_work(other) < lost and _fits_without(case, cluster, job, [stop]):
            yield f"stopping job {other.id} alone loses less than {[stop.job.id for stop in made.stops]}"


def lost_work(job: Job) -> float:
    """Device-seconds; without GPUs, by its cpus."""
    assert job.started_at is not None
    since = max(job.started_at, job.checkpointed_at or job.started_at)
    size = max(job.resources.gpus, job.resources.cpus * 0.02) * job.placement.tasks
    return 0.0 if is_over_time(job) else size * (NOW - since).total_seconds()


def may_stop(case: Case, job: Job, rank: int) -> bool:
    if job.stop_requested is not None:
        return False
    its = case.policy.find_priority_class(job.priority_class)
    preempted = case.policy.preempts and (job.preemptible or its.preemptible) and its.rank < rank
    return is_over_time(job) or (preempted and not is_protected(case, job))


def is_protected(case: Case, job: Job) -> bool:
    """After a preemption; the time doubles with each one, unless the job has saved a checkpoint since."""
    assert job.started_at is not None
    has_saved = job.checkpointed_at is not None and job.checkpointed_at > job.started_at
    times = 0 if job.preemptions == 0 else 1 if has_saved else 2 ** (job.preemptions - 1)
    return (NOW - job.started_at).total_seconds() < times * case.policy.protection_seconds


def after(case: Case, made: Plan, stops: Iterable[PlannedStop]) -> ReferenceCluster:
    """The cluster after all starts, these stops, and the end of jobs that are already being stopped."""
    cluster = case.cluster()
    for start in made.starts:
        cluster.put(start.job, start.places)
    gone = {stop.job.id for stop in stops}
    for job in case.running:
        if job.stop_requested is not None or job.id in gone:
            cluster.remove(job, job.task_placements)
    return cluster


def _fits_without(case: Case, cluster: ReferenceCluster, waiting: Job, victims: Iterable[PlannedStop]) -> bool:
    """Whether it fits on nodes that are not reserved for others."""
    trial = cluster.copy()
    for stop in victims:
        trial.remove(stop.job, stop.job.task_placements)
    end = NOW.timestamp() + case.limit(waiting)
    closed = {
        name
        for reservation in case.reservations
        if reservation.gpus_per_node is None
        and (reservation.project is None or reservation.project != waiting.project)
        if reservation.ends_at > NOW and reservation.starts_at.timestamp() < end
        for name in reservation.nodes
    }
    names = [node.name for node in case.nodes if node.name not in closed]
    return trial.places_for(waiting, case.data_class(waiting), names) is not None


def is_over_time(job: Job) -> bool:
    if not job.overtime or job.time_limit_seconds is None or job.started_at is None:
        return False
    return job.started_at.timestamp() + job.time_limit_seconds <= NOW.timestamp()


_STOPS = (_stopped_wrongly, _stopped_too_costly)
