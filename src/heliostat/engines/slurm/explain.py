"""Explains why a job waits in Slurm's queue: a message for each of Slurm's reasons, and the queue position. Pure.

Slurm has about 160 reasons; most are composed of parts (`QOSMaxGRESPerUser`), and so are the messages.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from heliostat.engines.slurm.command_output import SlurmJob
from heliostat.models import WaitReason

_ADMIN = "ask a Slurm administrator"
_SOURCE = "Slurm's plan"
_NOT_IN_QUEUE = frozenset({"Dependency", "DependencyNeverSatisfied", "BeginTime"})


@dataclass(frozen=True, slots=True)
class SlurmWaitReason:
    # priority, resources, nodes, quota, reservation, array, held, dependency, begin_time, other
    kind: str
    message: str


_REASONS = {
    "None": SlurmWaitReason("priority", "waits for Slurm's next scheduling cycle"),
    "Priority": SlurmWaitReason("priority", "waits for jobs with a higher priority in Slurm"),
    "Resources": SlurmWaitReason("resources", "waits for resources: those it requests are in use"),
    "Dependency": SlurmWaitReason("dependency", "waits for another job in Slurm"),
    "DependencyNeverSatisfied": SlurmWaitReason("dependency", "its dependency can never be satisfied; cancel it"),
    "BeginTime": SlurmWaitReason("begin_time", "waits for its begin time"),
    "JobHeldUser": SlurmWaitReason("held", "held in Slurm by its owner; to release it: `scontrol release`"),
    "JobHeldAdmin": SlurmWaitReason(
        "held", "held in Slurm by an administrator; ask an administrator to release it"
    ),
    "JobHoldMaxRequeue": SlurmWaitReason(
        "held", "held in Slurm: it was requeued too often; check its output, then release it"
    ),
    "JobArrayTaskLimit": SlurmWaitReason(
        "array", "waits for other elements of its array: the array's limit of running jobs is reached"
    ),
    "PartitionDown": SlurmWaitReason("nodes", f"its partition is down; {_ADMIN}"),
    "PartitionInactive": SlurmWaitReason("nodes", f"its partition is closed; {_ADMIN}"),
    "PartitionTimeLimit": SlurmWaitReason(
        "nodes", "requests more time than its partition allows; request less with --time"
    ),
    "PartitionNodeLimit": SlurmWaitReason(
        "nodes", "requests more nodes than its partition allows per job; request fewer"
    ),
    "PartitionConfig": SlurmWaitReason("nodes", "requests more than its partition allows; request less"),
    "ReqNodeNotAvail": SlurmWaitReason("nodes", "a node it needs is not available; see helio nodes"),
    "NodeDown": SlurmWaitReason("nodes", "a node it needs is down; see helio nodes"),
    "FrontEndDown": SlurmWaitReason("nodes", f"no front end of Slurm is up; {_ADMIN}"),
    "BadConstraints": SlurmWaitReason("nodes", "no node satisfies its request; cancel it and change the request"),
    "Reservation": SlurmWaitReason("reservation", "waits for its reservation"),
    "ReservationDeleted": SlurmWaitReason(
        "reservation", "its reservation was deleted; cancel it and submit it without a reservation"
    ),
    "Licenses": SlurmWaitReason("resources", "waits for a licence that is in use"),
    "BurstBufferResources": SlurmWaitReason("resources", "waits for free space in the burst buffer"),
    "BurstBufferStageIn": SlurmWaitReason("begin_time", "its data is being copied to the burst buffer"),
    "BurstBufferOperation": SlurmWaitReason("other", f"the burst buffer failed; {_ADMIN}"),
    "Cleaning": SlurmWaitReason("begin_time", "is being cleaned up after its last run; it continues by itself"),
    "Prolog": SlurmWaitReason("begin_time", "its nodes are being prepared"),
    "InvalidAccount": SlurmWaitReason("quota", f"its account in Slurm is no longer valid; {_ADMIN}"),
    "InvalidQOS": SlurmWaitReason("quota", f"its QOS in Slurm is no longer valid; {_ADMIN}"),
    "AccountNotAllowed": SlurmWaitReason("quota", f"its account may not use this partition; {_ADMIN}"),
    "QOSNotAllowed": SlurmWaitReason(
        "quota", "its QOS is not allowed in this partition; submit it with the class normal"
    ),
    "QOSUsageThreshold": SlurmWaitReason(
        "quota", "the recent usage of its account is too high for this QOS; wait, or use another class"
    ),
    "QOSJobLimit": SlurmWaitReason("quota", "its QOS has reached its job limit; it starts when other jobs end"),
    "QOSResourceLimit": SlurmWaitReason(
        "quota", "its QOS has reached its resource limit; it starts when other jobs end"
    ),
    "QOSTimeLimit": SlurmWaitReason(
        "quota", "its QOS has used up its time; request less time, or use another class"
    ),
    "AssociationJobLimit": SlurmWaitReason(
        "quota", "its account has reached its job limit; it starts when other jobs end"
    ),
    "AssociationResourceLimit": SlurmWaitReason(
        "quota", "its account has reached its resource limit; it starts when other jobs end"
    ),
    "AssociationTimeLimit": SlurmWaitReason("quota", f"its account has used up its time; {_ADMIN}"),
    "MaxMemPerLimit": SlurmWaitReason(
        "nodes", "requests more memory than its partition allows; request less with --memory"
    ),
    "DeadLine": SlurmWaitReason("other", "cannot end before its deadline in Slurm; cancel it"),
    "FedJobLock": SlurmWaitReason("priority", "waits for another cluster of Slurm's federation"),
    "JobLaunchFailure": SlurmWaitReason("held", f"could not be launched on its node; {_ADMIN}"),
    "SystemFailure": SlurmWaitReason("other", f"internal failure of Slurm; {_ADMIN}"),
}
# Reasons that Slurm reports as phrases; the first match counts.
_PHRASES = (
    ("launch failed requeued held", _REASONS["JobLaunchFailure"]),
    (
        "job requeued in held state",
        SlurmWaitReason("held", "requeued and held in Slurm; to release it: `scontrol release`"),
    ),
    (
        "nodes required for job are down",
        SlurmWaitReason("nodes", "the nodes it needs are down, drained or reserved for other jobs"),
    ),
    ("reqnodenotavail", _REASONS["ReqNodeNotAvail"]),
)
_LIMIT = re.compile(
    r"(QOS|Assoc|)(Grp|Max|Min)(CPU|Cpu|GRES|Memory|Mem|Node|Jobs|SubmitJobs?|WallDuration|Wall|License|BB|Billing"
    r"|Energy|Unknown)(RunMinutes|Minutes|)(?:Per(Job|Node|User|Account))?(?:Limit|NotSatisfied)?"
)
_RESOURCES = {
    "CPU": "cpus",
    "Cpu": "cpus",
    "GRES": "GPUs",
    "Mem": "memory",
    "Memory": "memory",
    "Node": "nodes",
    "Jobs": "running jobs",
    "SubmitJob": "jobs in the queue",
    "SubmitJobs": "jobs in the queue",
    "Wall": "running time",
    "WallDuration": "time",
    "License": "licences",
    "BB": "burst buffer",
    "Billing": "billed units",
    "Energy": "energy",
    "Unknown": "units of a resource",
}


def explain_reason(reason: str) -> SlurmWaitReason:
    """An unknown reason is shown as Slurm reports it."""
    if known := _REASONS.get(reason):
        return known
    text = reason.replace("_", " ").lower()
    for phrase, explanation in _PHRASES:
        if phrase in text:
            return explanation
    if match := _LIMIT.fullmatch(reason):
        return SlurmWaitReason("quota", _limit_message(*(part or "" for part in match.groups())))
    return SlurmWaitReason("other", f"waits in Slurm: {_printable(reason)}")


def _limit_message(owner: str, bound: str, resource: str, minutes: str, per: str) -> str:
    holder = "account" if owner == "Assoc" else "QOS"
    name = _RESOURCES[resource]
    if bound == "Min":
        return f"requests less than the minimum of its {holder}: {name}; request more"
    if bound == "Grp":
        return _group_limit_message(f"its {holder}", name, minutes)
    if per in ("Job", "Node"):
        excess = f"{name} and time together" if minutes else f"{name} per node" if per == "Node" else name
        return f"requests more {excess} than its {holder} allows per job; cancel it and request less"
    if per == "Account":
        return f"its account has reached the limit of {name} per account in its QOS; it starts when other jobs end"
    return f"its owner has reached the limit of {name} per user in the {holder}; it starts when other jobs end"


def _group_limit_message(holder: str, name: str, minutes: str) -> str:
    if minutes == "RunMinutes":
        return f"the running jobs of {holder} have reached its limit of {name} and time; request less time"
    if minutes or name == "running time":
        used = f"{name} and time" if minutes else name
        return f"{holder} has used up its limit of {used}; {_ADMIN}"
    return f"{holder} has reached its limit of {name}; it starts when other jobs end"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)[:200]


class QueueOrder:
    """The queue at one poll. Positions are counted per partition, without jobs that are held or wait for another
    job or for their begin time."""

    def __init__(self, jobs: Mapping[int, SlurmJob]) -> None:
        self._jobs = jobs

    def wait_reason(self, number: int) -> WaitReason | None:
        """None: the job does not wait, or is unknown."""
        job = self._jobs.get(number)
        if job is None or not job.is_waiting:
            return None
        reason = explain_reason(job.reason)
        position, length = self._positions.get(number, (None, None))
        starts_at = None if reason.kind == "held" else job.started_at
        return WaitReason(reason.message, reason.kind, position, length, starts_at, _SOURCE)

    @cached_property
    def _positions(self) -> dict[int, tuple[int, int]]:
        queues: dict[str, list[SlurmJob]] = defaultdict(list)
        for job in self._jobs.values():
            if job.is_waiting and job.queue_details.priority > 0 and job.reason not in _NOT_IN_QUEUE:
                queues[job.queue_details.partition].append(job)
        positions: dict[int, tuple[int, int]] = {}
        for queue in queues.values():
            queue.sort(key=lambda job: (-job.queue_details.priority, job.job_id))
            positions |= {job.job_id: (position, len(queue)) for position, job in enumerate(queue, 1)}
        return positions
