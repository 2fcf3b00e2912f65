"""Why a job waits in Slurm's queue, in one sentence of ours with what to do about it, and where in line: pure.

Slurm has some 160 reasons; most are built of parts (`QOSMaxGRESPerUser`), and so are our sentences.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from heliostat.engines.slurm.command_output import SlurmJob
from heliostat.models import WaitReason

_ADMIN = "ask an administrator of Slurm"
_SOURCE = "Slurm's plan"
_NOT_IN_LINE = frozenset({"Dependency", "DependencyNeverSatisfied", "BeginTime"})


@dataclass(frozen=True, slots=True)
class SlurmWaitReason:
    kind: str  # what blocks it: turn, room, nodes, quota, reservation, array, held, dependency, begin, other
    message: str


_REASONS = {
    "None": SlurmWaitReason("turn", "waits for Slurm to look at it"),
    "Priority": SlurmWaitReason("turn", "waits behind jobs with a higher priority in Slurm"),
    "Resources": SlurmWaitReason("room", "waits for room: what it asks for is in use"),
    "Dependency": SlurmWaitReason("dependency", "waits for another job in Slurm"),
    "DependencyNeverSatisfied": SlurmWaitReason("dependency", "waits for a job that ended otherwise; cancel it"),
    "BeginTime": SlurmWaitReason("begin", "waits for its begin time"),
    "JobHeldUser": SlurmWaitReason("held", "held in Slurm by its owner; `scontrol release` lets it go"),
    "JobHeldAdmin": SlurmWaitReason("held", "held in Slurm by an administrator; ask them to release it"),
    "JobHoldMaxRequeue": SlurmWaitReason(
        "held", "held in Slurm: it was requeued too often; see its output, then release it"
    ),
    "JobArrayTaskLimit": SlurmWaitReason(
        "array", "waits for other elements of its array: no more may run at once"
    ),
    "PartitionDown": SlurmWaitReason("nodes", f"its partition is down; {_ADMIN}"),
    "PartitionInactive": SlurmWaitReason("nodes", f"its partition is closed; {_ADMIN}"),
    "PartitionTimeLimit": SlurmWaitReason(
        "nodes", "asks for more time than its partition allows; ask for less with --time"
    ),
    "PartitionNodeLimit": SlurmWaitReason(
        "nodes", "asks for more nodes than its partition gives one job; ask for fewer"
    ),
    "PartitionConfig": SlurmWaitReason("nodes", "asks for more than its partition allows; ask for less"),
    "ReqNodeNotAvail": SlurmWaitReason("nodes", "a node it needs is not available; see helio nodes"),
    "NodeDown": SlurmWaitReason("nodes", "a node it needs is down; see helio nodes"),
    "FrontEndDown": SlurmWaitReason("nodes", f"no front end of Slurm is up; {_ADMIN}"),
    "BadConstraints": SlurmWaitReason(
        "nodes", "no node has what it asks for; cancel it and ask for something else"
    ),
    "Reservation": SlurmWaitReason("reservation", "waits for its reservation"),
    "ReservationDeleted": SlurmWaitReason(
        "reservation", "its reservation was deleted; cancel it and submit it without"
    ),
    "Licenses": SlurmWaitReason("room", "waits for a licence that is in use"),
    "BurstBufferResources": SlurmWaitReason("room", "waits for room in the burst buffer"),
    "BurstBufferStageIn": SlurmWaitReason("begin", "its data is being copied to the burst buffer"),
    "BurstBufferOperation": SlurmWaitReason("other", f"the burst buffer failed; {_ADMIN}"),
    "Cleaning": SlurmWaitReason("begin", "is being cleaned up after its last run; it goes on by itself"),
    "Prolog": SlurmWaitReason("begin", "its nodes are being prepared"),
    "InvalidAccount": SlurmWaitReason("quota", f"its account in Slurm is no longer valid; {_ADMIN}"),
    "InvalidQOS": SlurmWaitReason("quota", f"its QOS in Slurm is no longer valid; {_ADMIN}"),
    "AccountNotAllowed": SlurmWaitReason("quota", f"its account may not use this partition; {_ADMIN}"),
    "QOSNotAllowed": SlurmWaitReason("quota", "its QOS may not be used there; submit it with the class normal"),
    "QOSUsageThreshold": SlurmWaitReason(
        "quota", "its account has used too much lately for this QOS; wait, or use another class"
    ),
    "QOSJobLimit": SlurmWaitReason("quota", "its QOS has all the jobs it may have; it starts when others end"),
    "QOSResourceLimit": SlurmWaitReason("quota", "its QOS uses all it may; it starts when others end"),
    "QOSTimeLimit": SlurmWaitReason("quota", "its QOS has used up its time; ask for less time, or another class"),
    "AssociationJobLimit": SlurmWaitReason(
        "quota", "its account has all the jobs it may have; it starts when others end"
    ),
    "AssociationResourceLimit": SlurmWaitReason("quota", "its account uses all it may; it starts when others end"),
    "AssociationTimeLimit": SlurmWaitReason("quota", f"its account has used up its time; {_ADMIN}"),
    "MaxMemPerLimit": SlurmWaitReason(
        "nodes", "asks for more memory than its partition gives; ask for less with --memory"
    ),
    "DeadLine": SlurmWaitReason("other", "cannot end before its deadline in Slurm; cancel it"),
    "FedJobLock": SlurmWaitReason("turn", "waits for another cluster of Slurm's federation"),
    "JobLaunchFailure": SlurmWaitReason("held", f"could not be launched on its node; {_ADMIN}"),
    "SystemFailure": SlurmWaitReason("other", f"Slurm had a failure of its own; {_ADMIN}"),
}
# What Slurm says in whole words instead of one; the first that is found counts.
_PHRASES = (
    ("launch failed requeued held", _REASONS["JobLaunchFailure"]),
    (
        "job requeued in held state",
        SlurmWaitReason("held", "requeued and held in Slurm; `scontrol release` lets it go"),
    ),
    (
        "nodes required for job are down",
        SlurmWaitReason("nodes", "the nodes it needs are down, drained or kept for others"),
    ),
    ("reqnodenotavail", _REASONS["ReqNodeNotAvail"]),
)
_LIMIT = re.compile(
    r"(QOS|Assoc|)(Grp|Max|Min)(CPU|Cpu|GRES|Memory|Mem|Node|Jobs|SubmitJobs?|WallDuration|Wall|License|BB|Billing"
    r"|Energy|Unknown)(RunMinutes|Minutes|)(?:Per(Job|Node|User|Account))?(?:Limit|NotSatisfied)?"
)
_WHAT = {
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


def explain_reason(said: str) -> SlurmWaitReason:
    """What we have no words for is said as Slurm says it."""
    if known := _REASONS.get(said):
        return known
    plain = said.replace("_", " ").lower()
    for phrase, reason in _PHRASES:
        if phrase in plain:
            return reason
    if found := _LIMIT.fullmatch(said):
        return SlurmWaitReason("quota", _limit_in_words(*(part or "" for part in found.groups())))
    return SlurmWaitReason("other", f"waits in Slurm: {_printable(said)}")


def _limit_in_words(owner: str, bound: str, what: str, minutes: str, each: str) -> str:
    whose = "account" if owner == "Assoc" else "QOS"
    many = _WHAT[what]
    if bound == "Min":
        return f"asks for less than its {whose} demands: {many}; ask for more"
    if bound == "Grp":
        return _group_in_words(f"its {whose}", many, minutes)
    if each in ("Job", "Node"):
        over = f"{many} and time together" if minutes else f"{many} on a node" if each == "Node" else many
        return f"asks for more {over} than its {whose} allows one job; cancel it and ask for less"
    if each == "Account":
        return f"its account has all the {many} that its QOS allows one account; it starts when others of it end"
    return f"its owner has all the {many} that the {whose} allows one user; it starts when others of theirs end"


def _group_in_words(whose: str, many: str, minutes: str) -> str:
    if minutes == "RunMinutes":
        return f"the running jobs of {whose} have all the {many} and time they may; it helps to ask for less time"
    if minutes or many == "running time":
        what = f"{many} and time" if minutes else many
        return f"{whose} has used up what it may of {what}; {_ADMIN}"
    return f"{whose} has all the {many} it may have; it starts when others of it end"


def _printable(said: str) -> str:
    return "".join(sign if sign.isprintable() else " " for sign in said)[:200]


class QueueOrder:
    """The queue as one look has found it. Each partition has a line of its own; a job that is held, or waits for
    another job or for its time to begin, stands in none."""

    def __init__(self, jobs: Mapping[int, SlurmJob]) -> None:
        self._jobs = jobs

    def wait_reason(self, number: int) -> WaitReason | None:
        """None: it does not wait, or is not known."""
        job = self._jobs.get(number)
        if job is None or not job.is_waiting:
            return None
        reason = explain_reason(job.reason)
        position, of = self._positions.get(number, (None, None))
        starts_at = None if reason.kind == "held" else job.started_at
        return WaitReason(reason.message, reason.kind, position, of, starts_at, _SOURCE)

    @cached_property
    def _positions(self) -> dict[int, tuple[int, int]]:
        lines: dict[str, list[SlurmJob]] = defaultdict(list)
        for job in self._jobs.values():
            if job.is_waiting and job.queue_details.priority > 0 and job.reason not in _NOT_IN_LINE:
                lines[job.queue_details.partition].append(job)
        found: dict[int, tuple[int, int]] = {}
        for line in lines.values():
            line.sort(key=lambda job: (-job.queue_details.priority, job.job_id))
            found |= {job.job_id: (at, len(line)) for at, job in enumerate(line, 1)}
        return found
