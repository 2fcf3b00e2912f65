"""Which words of Slurm stand for ours, and what Slurm's words mean here: pure."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from heliostat.config import SlurmSettings
from heliostat.engines.slurm.client import SlurmRefused
from heliostat.engines.slurm.command_output import SlurmJob, SlurmNode
from heliostat.engines.slurm.explain import explain_reason
from heliostat.engines.slurm.journal import ALREADY_STARTED_EXIT_CODE, EMPTY_RECEIPT, Receipt
from heliostat.models import Attempt, AttemptEnded, Device, EndCause, Job, Node, NodeState

UNSAFE_CHARACTERS = re.compile(r"[^A-Za-z0-9._-]+")
_DOWN = ("down", "fail", "error", "unknown", "power_down", "powered_down", "no_respond", "future")
_DRAINED = ("drain", "maint", "reboot")
_HINTS = {
    "Invalid qos specification": "there is no such QOS for this account in Slurm; ask for the class normal",
    "Invalid account or account/partition combination specified": (
        "this user has no account in Slurm; an admin can add it: helio slurm apply"
    ),
    "Invalid feature specification": "no node in Slurm has all these labels as features",
}
_OF_THE_JOB = (
    *("invalid", "requested", "required", "specification", "violates", "exceed", "limit", "too many", "too large"),
    *("not permitted", "denied", "not available", "unsupported", "no such", "unknown"),
)
_OF_LIMITS = "accounting/qos policy"  # any of them; a line before says which
_LIMIT = re.compile(r"\b(?:Assoc|QOS)[A-Z][A-Za-z]+\b")
_NO_FILES = 53  # Slurm's own "signal" for a batch job whose files could not be opened
_NO_MEMORY, _KILLED = 125, 137  # its own for one that ran out of memory, and what that is elsewhere
_NO_RECEIPT = "its node could not write to its folder; that must be on a shared file system"
_BY_STATE = {
    "TIMEOUT": (EndCause.TIMED_OUT, None),
    "DEADLINE": (EndCause.TIMED_OUT, "its deadline in Slurm has passed"),
    "NODE_FAIL": (EndCause.LOST, "its node failed"),
    "BOOT_FAIL": (EndCause.LOST, "its node could not be booted"),
    "PREEMPTED": (EndCause.PREEMPTED, "Slurm sent it away for another job"),
    "REVOKED": (EndCause.LOST, "Slurm gave it to another cluster"),
    "CANCELLED": (EndCause.STOPPED, "cancelled with Slurm's own tools"),
}


class UnsupportedRequest(Exception):
    """Slurm cannot do what the job asks for; says what."""


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """Where in Slurm a job goes."""

    partition: str | None = None  # or several, separated by commas; None: Slurm's default
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NameMapping:
    """What an admin has set; what is not named stands for itself."""

    partition: str | None = None
    data_classes: Mapping[int, PartitionChoice] = field(default_factory=dict)
    labels: Mapping[str, PartitionChoice] = field(default_factory=dict)
    qos: Mapping[str, str] = field(default_factory=dict)
    configured_gpu_types: Mapping[str, str] = field(default_factory=dict)  # Slurm's word for ours
    observed_gpu_types: Mapping[str, str] = field(default_factory=dict)  # as Slurm writes them, by small letters

    def with_observed_gpu_types(self, gpu_types: Iterable[str]) -> "NameMapping":
        """With the types of GPUs as Slurm writes them."""
        return replace(self, observed_gpu_types={kind.lower(): kind for kind in gpu_types})

    def slurm_gpu_type(self, ours: str) -> str:
        """Slurm's word, which must be right to the letter."""
        named = {name.lower(): theirs for name, theirs in self.configured_gpu_types.items()}
        return named.get(ours.lower()) or self.observed_gpu_types.get(ours.lower(), ours)

    def slurm_qos(self, priority_class: str) -> str | None:
        """None: whatever Slurm gives to those who name none."""
        return self.qos.get(priority_class, None if priority_class == "normal" else priority_class)


def make_name_mapping(slurm: SlurmSettings) -> NameMapping:
    return NameMapping(
        partition=slurm.partition,
        data_classes={int(number): _read(text) for number, text in slurm.data_classes.items()},
        labels={label: _read(text) for label, text in slurm.labels.items()},
        qos=slurm.qos,
        configured_gpu_types=slurm.gpu_types,
    )


def choose_partition(job: Job, data_class: int, names: NameMapping) -> PartitionChoice:
    """Raises Unfit where the data, or two labels, are at odds."""
    if data_class and data_class not in names.data_classes:
        raise UnsupportedRequest(
            f"nothing says where in Slurm data of class {data_class} may be; an admin can set [slurm] data_classes"
        )
    wishes = {f"data of class {data_class}": names.data_classes.get(data_class, PartitionChoice())}
    wishes |= {f"label {label}": _place_of_label(label, names) for label in job.placement.labels}
    chosen = {said: place.partition for said, place in wishes.items() if place.partition}
    if len(set(chosen.values())) > 1:
        raise UnsupportedRequest(
            "in Slurm " + " and ".join(f"{said} is in partition {name}" for said, name in chosen.items())
        )
    features = dict.fromkeys(name for place in wishes.values() for name in place.features)
    return PartitionChoice(next(iter(chosen.values()), names.partition), tuple(features))


def require_safe_word(text: str, what: str) -> str:
    """Slurm gives a meaning to what stands between words: `a100:4`, `fast|slow`."""
    if not text or UNSAFE_CHARACTERS.search(text) or text.startswith("-"):
        raise UnsupportedRequest(f"Slurm knows no {what} {text!r}; it may hold letters, digits, dots and dashes")
    return text


def _place_of_label(label: str, names: NameMapping) -> PartitionChoice:
    return (
        names.labels[label]
        if label in names.labels
        else PartitionChoice(features=(require_safe_word(label, "label"),))
    )


def _read(text: str) -> PartitionChoice:
    """`partition=secure feature=vault`: checked when the settings are read."""
    parts = list(_parts(text))
    partition = next((value for name, value in parts if name == "partition"), None)
    return PartitionChoice(partition, tuple(value for name, value in parts if name == "feature"))


def _parts(text: str) -> Iterator[tuple[str, str]]:
    for one in text.split():
        name, _, value = one.partition("=")
        yield name, value


def make_node(node: SlurmNode) -> Node:
    """Slurm names no memory and no uuid of a GPU: the number on its node stands for it."""
    state = _state(node.state)
    kinds = [kind for kind, count in node.gpus for _ in range(count)]
    devices = tuple(
        Device(device_uuid(node.name, index), index, kind, kind, 0) for index, kind in enumerate(kinds)
    )
    reason = None if state is NodeState.UP else node.reason or f"Slurm says {node.state}"
    labels = dict.fromkeys(node.features, "")
    return Node(node.name, node.cpus, node.memory_mib, devices, state, reason, labels)


def device_uuid(node: str, index: int) -> str:
    return f"{node}:{index}"


def _state(said: str) -> NodeState:
    """`idle`, `mixed*` (does not answer), `idle+drain`, `drained`, `idle~` (asleep, wakes when needed)…"""
    if said.endswith("*") or any(word in said for word in _DOWN):
        return NodeState.DOWN
    return NodeState.DRAINED if any(word in said for word in _DRAINED) else NodeState.UP


def describe_refusal(error: SlurmRefused) -> str:
    said, limit = str(error), find_exceeded_limit(error)
    if limit is not None:
        return f"Slurm refuses it: {explain_reason(limit).message} ({limit})"
    hint = _HINTS.get(said)
    return f"Slurm refuses it: {said}" + (f" ({hint})" if hint else "")


def find_exceeded_limit(error: SlurmRefused) -> str | None:
    """The limit of an account or QOS that keeps it out, as Slurm calls it; None: none, or it is not named."""
    found = _LIMIT.search(error.output) if _OF_LIMITS in str(error).lower() else None
    return None if found is None else found[0]


def is_job_count_limit(error: SlurmRefused) -> bool:
    """Too many would be in Slurm at a time: fewer may go through, and as many once others have left."""
    limit = find_exceeded_limit(error)
    return _OF_LIMITS in str(error).lower() if limit is None else "SubmitJob" in limit


def is_temporary_refusal(error: SlurmRefused) -> bool:
    """Whether it is worth another try later: a limit on how many jobs one may have in Slurm, or words that do not
    speak of the job, as of a controller that is being killed."""
    said = str(error).lower()
    if is_job_count_limit(error):
        return True
    return _OF_LIMITS not in said and not any(word in said for word in _OF_THE_JOB)


@dataclass(frozen=True, slots=True)
class EndEvidence:
    """What we know of an end besides Slurm."""

    stop_cause: EndCause | None = None  # what we stopped it for
    receipt: Receipt = EMPTY_RECEIPT
    controller_restarted: bool = False  # a controller of Slurm's had begun anew a moment before


def determine_end(attempt: Attempt, job: SlurmJob, known: EndEvidence) -> AttemptEnded:
    """How a Slurm job that is over has ended."""
    if known.stop_cause is None and job.exit_code == ALREADY_STARTED_EXIT_CODE and not known.receipt.has_started:
        return AttemptEnded(attempt.id, datetime.now(UTC), EndCause.NOT_STARTED, detail=_NO_RECEIPT)
    if known.stop_cause is None and _is_doubtful(job, known):
        return determine_end_from_receipt(attempt, known.receipt)
    cause, detail = _cause(attempt, job, known)
    code = _code(job, known.receipt)
    if job.state in ("NODE_FAIL", "BOOT_FAIL") or not job.has_started:
        code = None
    return AttemptEnded(attempt.id, job.ended_at or datetime.now(UTC), cause, code, detail)


def determine_end_from_receipt(attempt: Attempt, receipt: Receipt) -> AttemptEnded:
    """Of a job that Slurm has lost. One that never began is handed over once more."""
    if receipt.exited_without_signal:
        return AttemptEnded(
            attempt.id, receipt.written_at or datetime.now(UTC), EndCause.EXITED, receipt.exit_code
        )
    if receipt.has_started:
        return AttemptEnded(attempt.id, datetime.now(UTC), EndCause.LOST, detail="Slurm has lost it while it ran")
    return AttemptEnded(
        attempt.id, datetime.now(UTC), EndCause.NOT_STARTED, detail="Slurm has lost it before it began"
    )


def was_killed(job: SlurmJob) -> bool:
    """By somebody, or by Slurm itself."""
    return job.state == "CANCELLED" or (job.state == "FAILED" and bool(job.signal or job.exit_code > 128))


def _is_doubtful(job: SlurmJob, known: EndEvidence) -> bool:
    """Whether its own receipt is more to be trusted than what Slurm says."""
    receipt = known.receipt
    if job.state == "NODE_FAIL":
        return not receipt.has_started or receipt.exited_without_signal
    if was_killed(job):
        return known.controller_restarted and job.has_started
    return job.exit_code == ALREADY_STARTED_EXIT_CODE and receipt.exit_code != ALREADY_STARTED_EXIT_CODE


def _code(job: SlurmJob, receipt: Receipt) -> int | None:
    if job.signal == _NO_FILES:
        return None
    if job.state == "OUT_OF_MEMORY" and job.signal == _NO_MEMORY:
        return receipt.exit_code or _KILLED
    return 128 + job.signal if job.signal else job.exit_code


def _cause(attempt: Attempt, job: SlurmJob, known: EndEvidence) -> tuple[EndCause, str | None]:
    if known.stop_cause is not None:
        return known.stop_cause, None
    full = job.state == "FAILED" and job.exit_code == _KILLED and known.receipt.out_of_memory
    if job.state == "OUT_OF_MEMORY" or full:
        limit = attempt.job.resources.memory_mib * attempt.job.placement.tasks
        return EndCause.OUT_OF_MEMORY, f"it used more than its {limit} MiB of memory"
    if _ran_over(attempt, job):
        return EndCause.TIMED_OUT, None
    if job.state in _BY_STATE:
        return _BY_STATE[job.state]
    if job.signal == _NO_FILES:
        return (
            EndCause.REFUSED,
            "its node could not open its log files; they must be on a shared file system",
        )
    return EndCause.EXITED, None


def _ran_over(attempt: Attempt, job: SlurmJob) -> bool:
    """Ended by a signal at or after its limit: by a server that was killed before it could say so."""
    limit = attempt.job.time_limit_seconds
    if limit is None or attempt.job.overtime or job.started_at is None or job.ended_at is None:
        return False
    was_signalled = job.signal or job.exit_code > 128
    return bool(was_signalled) and (job.ended_at - job.started_at).total_seconds() >= limit
