"""Clusters and queues that are made up: one for each seed that Hypothesis chooses."""

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
from unit.scheduling.ground import Ground
from unit.scheduling.made_up import NOW, a_board, a_job

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
        return a_board(self.nodes, in_order, self.policy, self.accounts, self.reservations)

    def ground(self) -> Ground:
        """With what runs."""
        ground = Ground(self.nodes)
        for job in self.running:
            ground.put(job, job.task_placements)
        return ground

    def data_class(self, job: Job) -> int:
        return self.accounts.project_or_default(job.project).data_class

    def limit(self, job: Job) -> float:
        return float(job.time_limit_seconds or self.policy.assumed_limit_seconds)

    def gpus(self, job: Job) -> float:
        """What it keeps from others: alone on its nodes, all their GPUs; while it waits, the most that may be."""
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
class Wishes:
    """What a made-up cluster and queue may contain."""

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


ALL = Wishes()


def cases(wishes: Wishes = ALL) -> st.SearchStrategy[Case]:
    return st.integers(0, 2**48).map(lambda seed: a_case(Random(seed), wishes))


def a_case(random: Random, wishes: Wishes = ALL) -> Case:
    nodes = tuple(_node(random, f"n{number}", wishes) for number in range(random.randint(1, wishes.nodes)))
    accounts = _accounts(random) if wishes.accounts else ShareAccounts()
    pending = tuple(_job(random, number, wishes) for number in range(1, 1 + random.randint(0, wishes.pending)))
    running = _running(random, nodes, accounts, wishes)
    if wishes.faults:
        nodes = tuple(_perhaps_broken(random, node) for node in nodes)
    policy = SchedulingPolicy(
        order=random.choice(wishes.orders),
        backfill=random.random() < 0.8 if wishes.backfill is None else wishes.backfill,
        reservations=random.randint(1, wishes.max_reserved),
        preempts=random.random() < 0.8,
    )
    reserved = (_reservation(random, nodes, wishes) for _ in range(random.randint(0, wishes.reservations)))
    return Case(nodes, running, pending, policy, accounts, tuple(reserved))


def smallest(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Left-out jobs, nodes and reservations make a failure easier to read."""
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


def _node(random: Random, name: str, wishes: Wishes) -> Node:
    kinds = random.sample(TYPES, 2 if wishes.mixed_nodes and random.random() < 0.3 else 1)
    chosen = [kinds[index % len(kinds)] for index in range(random.choice([0, 1, 2, 3, 4, 4]))]
    low, high = random.choice([(0, 3), (0, 3), (0, 0), (1, 2)]) if wishes.accounts else (0, 0)
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
        splits_devices=wishes.parts and random.random() < 0.6,
    )


def _perhaps_broken(random: Random, node: Node) -> Node:
    """Drained, or with a faulty device: also under running jobs."""
    if random.random() < 0.08:
        return replace(node, state=random.choice([NodeState.DRAINED, NodeState.DOWN]))
    if node.devices and random.random() < 0.15:
        number = random.randrange(len(node.devices))
        broken = replace(node.devices[number], problem="ECC")
        return replace(node, devices=(*node.devices[:number], broken, *node.devices[number + 1 :]))
    return node


def _job(random: Random, number: int, wishes: Wishes) -> Job:
    minutes = None if wishes.unlimited and random.random() < 0.1 else random.choice(MINUTES)
    array = random.choice([None, None, None, None, 901, 902]) if wishes.arrays else None
    return a_job(
        number,
        _resources(random, wishes),
        user=random.choice(USERS),
        project=random.choice(PROJECTS),
        submitted_at=NOW - timedelta(minutes=random.choice([0, 0, 5, 60, 600])),
        time_limit_seconds=None if minutes is None else minutes * 60,
        placement=_placement(random, wishes),
        priority_class=random.choice(CLASSES) if wishes.classes else "normal",
        array_id=array,
        array_limit=None if array is None else array - 900,
        priority=random.choice([0, 0, 0, 0, -1, 1, 2, 5]) if wishes.classes else 0,
        priority_everywhere=random.random() < 0.3,
        waited_seconds=random.choice([0, 0, 5000]),
    )


def _resources(random: Random, wishes: Wishes) -> Resources:
    gpus = random.choice([0, 1, 1, 1, 2, 2, 3, 4] + ([0.25, 0.5, 0.5, 0.7] if wishes.parts else []))
    particular = gpus > 0 and random.random() < 0.25
    return Resources(
        cpus=random.choice([1, 1, 1, 2, 4]),
        memory_mib=random.choice([10, 50, 100, 300]),
        gpus=gpus,
        gpu_type=random.choice([None, "A100", "v100"]) if particular else None,
        gpu_memory_mib=random.choice([None, 40_000, 60_000]) if particular else None,
    )


def _placement(random: Random, wishes: Wishes) -> PlacementRequest:
    if random.random() < 0.5:
        return PlacementRequest()
    return PlacementRequest(
        tasks=random.choice([1, 2, 3]) if wishes.gangs else 1,
        layout=random.choice(list(TaskLayout)),
        exclusive=wishes.exclusive and random.random() < 0.25,
        labels=random.choice([(), (), (), ("disk",), ("disk=ssd",)]),
    )


def _running(random: Random, nodes: tuple[Node, ...], accounts: ShareAccounts, wishes: Wishes) -> tuple[Job, ...]:
    """Those of some made-up jobs that fit beside each other."""
    ground, found = Ground(nodes), list[Job]()
    for number in range(101, 101 + random.randint(0, wishes.running)):
        job = _job(random, number, wishes)
        names = random.sample([node.name for node in nodes], len(nodes))
        places = ground.places_for(job, accounts.project_or_default(job.project).data_class, names)
        if places is not None:
            several = places if len(places) > 1 else ()
            devices = tuple(uuid for place in places for uuid in place.devices)
            made = _as_running(random, job, wishes)
            found.append(replace(made, node=places[0].node, devices=devices, places=several))
            ground.put(job, places)
    return tuple(found)


def _as_running(random: Random, job: Job, wishes: Wishes) -> Job:
    overtime = wishes.stops and random.random() < 0.25
    minutes = random.choice([0, 1, 15, 45, 200])
    if job.time_limit_seconds is not None and not overtime:
        minutes = min(minutes, job.time_limit_seconds // 60)
    return replace(
        job,
        state=JobState.RUNNING,
        attempt=1,
        started_at=NOW - timedelta(minutes=minutes),
        overtime=overtime,
        preemptible=wishes.stops and random.random() < 0.5,
        preemptions=random.choice([0, 0, 0, 1, 3]) if wishes.stops else 0,
        checkpointed_at=NOW - timedelta(minutes=minutes / 2) if random.random() < 0.3 else None,
        stop_requested="preempt" if wishes.stops and random.random() < 0.1 else None,
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


def _reservation(random: Random, nodes: tuple[Node, ...], wishes: Wishes) -> Reservation:
    names = [node.name for node in nodes]
    starts_at = NOW + timedelta(minutes=random.choice([-60, -1, 20, 60, 100]))
    project = random.choice([None, *PROJECTS])
    partial = wishes.partial_reservations and project is not None and random.random() < 0.5
    return Reservation(
        random.choice(["course", "deadline"]),
        tuple(random.sample(names, random.randint(1, len(names)))),
        starts_at,
        starts_at + timedelta(minutes=random.choice([70, 180])),
        project=project,
        gpus_per_node=random.randint(1, 3) if partial else None,
    )
