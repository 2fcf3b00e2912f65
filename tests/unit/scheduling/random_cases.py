"""Random clusters and queues, one for each seed that Hypothesis chooses."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from heliostat.models import (
    ACTIVE_STATES,
    Department,
    Device,
    Job,
    JobState,
    Node,
    NodeState,
    PlacementRequest,
    Project,
    Quota,
    Reservation,
    Resources,
    TaskLayout,
)
from heliostat.scheduling.feasibility import allows_data_class, has_labels
from heliostat.scheduling.policy import QueueOrdering, SchedulingPolicy
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.share_accounts import ShareAccounts
from support.hypothesis_examples import example_count
from unit.scheduling.builders import NOW, a_job, a_queue_state
from unit.scheduling.reference_cluster import ReferenceCluster

TYPES = (("A100", 80_000), ("V100", 16_000), ("A100", 40_000))
PROJECTS = ("red", "green", "blue")
USERS = ("ann", "bob", "cem")
CLASSES = ("normal", "normal", "normal", "scavenger", "interactive", "urgent")
MINUTES = (1, 10, 30, 60, 90, 120, 240)
MANY = settings(max_examples=example_count(300), deadline=None, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class Case:
    nodes: tuple[Node, ...]
    running: tuple[Job, ...]
    pending: tuple[Job, ...]
    policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)
    accounts: ShareAccounts = field(default_factory=ShareAccounts)
    reservations: tuple[Reservation, ...] = ()

    @property
    def jobs(self) -> tuple[Job, ...]:
        return self.running + self.pending

    def board(self, jobs: Iterable[Job] | None = None) -> QueueState:
        in_order = self.jobs if jobs is None else jobs
        return a_queue_state(self.nodes, in_order, self.policy, self.accounts, self.reservations)

    def cluster(self) -> ReferenceCluster:
        """The reference cluster with the running jobs."""
        cluster = ReferenceCluster(self.nodes)
        for job in self.running:
            cluster.put(job, job.task_placements)
        return cluster

    def data_class(self, job: Job) -> int:
        return self.accounts.project_or_default(job.project).data_class

    def limit(self, job: Job) -> float:
        return float(job.time_limit_seconds or self.policy.assumed_limit_seconds)

    def gpus(self, job: Job) -> float:
        """GPUs that it occupies: all of its nodes if exclusive; while pending, the most that it may occupy."""
        asked = job.resources.gpus * job.placement.tasks
        if not job.placement.exclusive:
            return asked
        usable = {node.name: sum(device.is_available for device in node.devices) for node in self.nodes}
        if job.state in ACTIVE_STATES:
            return max(
                asked,
                sum(usable[name] for name in {place.node for place in job.task_placements} if name in usable),
            )
        part, data_class = 0 < job.resources.gpus < 1, self.accounts.project_or_default(job.project).data_class
        possible = [
            usable[node.name]
            for node in self.nodes
            if allows_data_class(node, data_class)
            and has_labels(node, job.placement.labels)
            and (node.splits_devices or not part)
        ]
        return max(asked, job.placement.tasks * max(possible, default=0))


@dataclass(frozen=True)
class CaseOptions:
    """What a random cluster and queue may contain."""

    nodes: int = 4
    running: int = 8
    pending: int = 12
    parts: bool = True
    gangs: bool = True
    exclusive: bool = True
    mixed_nodes: bool = True
    faults: bool = True
    accounts: bool = True
    arrays: bool = True
    reservations: int = 2
    partial_reservations: bool = True
    unlimited: bool = True
    stops: bool = True
    classes: bool = True
    orders: tuple[QueueOrdering, ...] = tuple(QueueOrdering)
    max_reserved: int = 3
    backfill: bool | None = None  # None: sometimes
    bookings: bool = True  # some jobs have a booking


ALL = CaseOptions()


def cases(options: CaseOptions = ALL) -> st.SearchStrategy[Case]:
    return st.integers(0, 2**48).map(lambda seed: a_case(Random(seed), options))


def a_case(random: Random, options: CaseOptions = ALL) -> Case:
    nodes = tuple(_node(random, f"n{number}", options) for number in range(random.randint(1, options.nodes)))
    accounts = _accounts(random) if options.accounts else ShareAccounts()
    pending = tuple(_job(random, number, options) for number in range(1, 1 + random.randint(0, options.pending)))
    running = _running(random, nodes, accounts, options)
    if options.faults:
        nodes = tuple(_maybe_broken(random, node) for node in nodes)
    policy = SchedulingPolicy(
        order=random.choice(options.orders),
        backfill=random.random() < 0.8 if options.backfill is None else options.backfill,
        backfill_reservations=random.randint(1, options.max_reserved),
        preempts=random.random() < 0.8,
        overdue_seconds=random.choice([5000.0, 7200.0, 30 * 86400.0]),
    )
    reserved = (_reservation(random, nodes, options) for _ in range(random.randint(0, options.reservations)))
    return Case(nodes, running, pending, policy, accounts, tuple(reserved))


def smallest(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Remove jobs, nodes and reservations while the failure remains, so that it is easier to read."""
    for smaller in _smaller(case):
        if fails(smaller):
            return smallest(smaller, fails)
    return case


def _smaller(case: Case) -> Iterator[Case]:
    for name in ("reservations", "pending", "running"):
        things = getattr(case, name)
        for place in range(len(things)):
            yield replace(case, **{name: things[:place] + things[place + 1 :]})
    used = {place.node for job in case.running for place in job.task_placements}
    used |= {name for reservation in case.reservations for name in reservation.nodes}
    for node in case.nodes:
        if node.name not in used:
            yield replace(case, nodes=tuple(other for other in case.nodes if other != node))
    if case.accounts != ShareAccounts():
        yield replace(case, accounts=ShareAccounts())


def _node(random: Random, name: str, options: CaseOptions) -> Node:
    kinds = random.sample(TYPES, 2 if options.mixed_nodes and random.random() < 0.3 else 1)
    chosen = [kinds[index % len(kinds)] for index in range(random.choice([0, 1, 2, 3, 4, 4]))]
    low, high = random.choice([(0, 3), (0, 3), (0, 0), (1, 2)]) if options.accounts else (0, 0)
    return Node(
        name,
        cpus=random.randint(3, 12),
        memory_mib=random.choice([400, 1000, 2000]),
        devices=tuple(
            Device(f"{name}-{index}", index, kind, f"NVIDIA {kind}", memory)
            for index, (kind, memory) in enumerate(chosen)
        ),
        labels={"disk": random.choice(["ssd", "tape"])} if random.random() < 0.6 else {},
        data_class=high,
        min_data_class=low,
        splits_devices=options.parts and random.random() < 0.6,
    )


def _maybe_broken(random: Random, node: Node) -> Node:
    """Drained, or with a faulty device: also under running jobs."""
    if random.random() < 0.08:
        return replace(node, state=random.choice([NodeState.DRAINED, NodeState.DOWN]))
    if node.devices and random.random() < 0.15:
        number = random.randrange(len(node.devices))
        find_violations = replace(node.devices[number], problem="ECC")
        return replace(node, devices=(*node.devices[:number], find_violations, *node.devices[number + 1 :]))
    return node


def _job(random: Random, number: int, options: CaseOptions) -> Job:
    minutes = None if options.unlimited and random.random() < 0.1 else random.choice(MINUTES)
    array = random.choice([None, None, None, None, 901, 902]) if options.arrays else None
    return a_job(
        number,
        _resources(random, options),
        user=random.choice(USERS),
        project=random.choice(PROJECTS),
        submitted_at=NOW - timedelta(minutes=random.choice([0, 0, 5, 60, 600])),
        time_limit_seconds=None if minutes is None else minutes * 60,
        placement=_placement(random, options),
        priority_class=random.choice(CLASSES) if options.classes else "normal",
        array_id=array,
        array_limit=None if array is None else array - 900,
        priority=random.choice([0, 0, 0, 0, -1, 1, 2, 5]) if options.classes else 0,
        priority_everywhere=random.random() < 0.3,
        waited_seconds=random.choice([0, 0, 5000]),
        booked_at=NOW - timedelta(minutes=random.randint(0, 60))
        if options.bookings and random.random() < 0.1
        else None,
    )


def _resources(random: Random, options: CaseOptions) -> Resources:
    gpus = random.choice([0, 1, 1, 1, 2, 2, 3, 4] + ([0.25, 0.5, 0.5, 0.7] if options.parts else []))
    particular = gpus > 0 and random.random() < 0.25
    return Resources(
        cpus=random.choice([1, 1, 1, 2, 4]),
        memory_mib=random.choice([10, 50, 100, 300]),
        gpus=gpus,
        gpu_type=random.choice([None, "A100", "v100"]) if particular else None,
        gpu_memory_mib=random.choice([None, 40_000, 60_000]) if particular else None,
    )


def _placement(random: Random, options: CaseOptions) -> PlacementRequest:
    if random.random() < 0.5:
        return PlacementRequest()
    return PlacementRequest(
        tasks=random.choice([1, 2, 3]) if options.gangs else 1,
        layout=random.choice(list(TaskLayout)),
        exclusive=options.exclusive and random.random() < 0.25,
        labels=random.choice([(), (), (), ("disk",), ("disk=ssd",)]),
    )


def _running(
    random: Random, nodes: tuple[Node, ...], accounts: ShareAccounts, options: CaseOptions
) -> tuple[Job, ...]:
    """Random jobs that fit on the nodes together."""
    cluster, found = ReferenceCluster(nodes), list[Job]()
    for number in range(101, 101 + random.randint(0, options.running)):
        job = _job(random, number, options)
        names = random.sample([node.name for node in nodes], len(nodes))
        places = cluster.places_for(job, accounts.project_or_default(job.project).data_class, names)
        if places is not None:
            several = places if len(places) > 1 else ()
            devices = tuple(uuid for place in places for uuid in place.devices)
            made = _as_running(random, job, options)
            found.append(replace(made, node=places[0].node, devices=devices, places=several))
            cluster.put(job, places)
    return tuple(found)


def _as_running(random: Random, job: Job, options: CaseOptions) -> Job:
    overtime = options.stops and random.random() < 0.25
    minutes = random.choice([0, 1, 15, 45, 200])
    if job.time_limit_seconds is not None and not overtime:
        minutes = min(minutes, job.time_limit_seconds // 60)
    return replace(
        job,
        state=JobState.RUNNING,
        attempt=1,
        started_at=NOW - timedelta(minutes=minutes),
        overtime=overtime,
        preemptible=options.stops and random.random() < 0.5,
        preemptions=random.choice([0, 0, 0, 1, 3]) if options.stops else 0,
        checkpointed_at=NOW - timedelta(minutes=minutes / 2) if random.random() < 0.3 else None,
        stop_requested="preempt" if options.stops and random.random() < 0.1 else None,
    )


def _accounts(random: Random) -> ShareAccounts:
    projects = {
        name: Project(
            name,
            random.choice(["north", "south"]),
            share=random.randint(1, 3),
            quota=_quota(random),
            data_class=random.choice([0, 0, 1, 2]),
        )
        for name in PROJECTS
    }
    departments = {name: Department(name, random.randint(1, 3), _quota(random)) for name in ("north", "south")}
    return ShareAccounts(departments, projects, {user: _quota(random) for user in USERS})


def _quota(random: Random) -> Quota:
    if random.random() < 0.8:
        return Quota()
    return Quota(running_gpus=random.randint(1, 8), gpu_hours_per_month=random.choice([None, None, 1, 100]))


def _reservation(random: Random, nodes: tuple[Node, ...], options: CaseOptions) -> Reservation:
    names = [node.name for node in nodes]
    starts_at = NOW + timedelta(minutes=random.choice([-60, -1, 20, 60, 100]))
    project = random.choice([None, *PROJECTS])
    partial = options.partial_reservations and project is not None and random.random() < 0.5
    return Reservation(
        random.choice(["course", "deadline"]),
        tuple(random.sample(names, random.randint(1, len(names)))),
        starts_at,
        starts_at + timedelta(minutes=random.choice([70, 180])),
        project=project,
        gpus_per_node=random.randint(1, 3) if partial else None,
    )
