"""Mapping between Heliostat and Slurm: partitions, features, QOS, GPU types, node states, refusals, ends. Pure."""

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
_NO_ACCOUNT = "Invalid account or account/partition combination specified"
_HINTS = {
    "Invalid qos specification": "the account may not use this QOS in Slurm; use the class normal",
    _NO_ACCOUNT: "this user has no account in Slurm; an admin can add it: helio slurm apply",
    "Invalid feature specification": "no Slurm node has all these labels as features",
}
_PERMANENT_REFUSALS = (
    *("invalid", "requested", "required", "specification", "violates", "exceed", "limit", "too many", "too large"),
    *("not permitted", "denied", "not available", "unsupported", "no such", "unknown"),
)
_LIMIT_REFUSAL = "accounting/qos policy"  # an earlier line names the limit
_LIMIT = re.compile(r"\b(?:Assoc|QOS)[A-Z][A-Za-z]+\b")
_NO_FILES_SIGNAL = 53  # Slurm's own "signal" for a batch job whose files could not be opened
_OUT_OF_MEMORY_SIGNAL, _KILLED = 125, 137  # Slurm's own "signal", and the usual exit code
_NO_RECEIPT = "its node could not write to the job's folder, which must be on a shared file system"
_BY_STATE = {
    "TIMEOUT": (EndCause.TIMED_OUT, None),
    "DEADLINE": (EndCause.TIMED_OUT, "its deadline in Slurm has passed"),
    "NODE_FAIL": (EndCause.LOST, "its node failed"),
    "BOOT_FAIL": (EndCause.LOST, "its node could not be booted"),
    "PREEMPTED": (EndCause.PREEMPTED, "preempted by Slurm for another job"),
    "REVOKED": (EndCause.LOST, "moved by Slurm to another cluster"),
    "CANCELLED": (EndCause.STOPPED, "cancelled with Slurm's own tools"),
}


class UnsupportedRequest(Exception):
    """Slurm cannot fulfil the job's request; the message says why."""


@dataclass(frozen=True, slots=True)
class PartitionChoice:
    """Partition and features of a job in Slurm."""

    partition: str | None = None  # one or several, separated by commas; None: Slurm's default
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NameMapping:
    """Slurm's names for Heliostat's, as configured in [slurm] of cluster.toml. Other names are used unchanged."""

    partition: str | None = None
    data_classes: Mapping[int, PartitionChoice] = field(default_factory=dict)
    labels: Mapping[str, PartitionChoice] = field(default_factory=dict)
    qos: Mapping[str, str] = field(default_factory=dict)
    configured_gpu_types: Mapping[str, str] = field(default_factory=dict)  # Slurm's name by Heliostat's
    observed_gpu_types: Mapping[str, str] = field(default_factory=dict)  # Slurm's spelling by lowercase name

    def with_observed_gpu_types(self, gpu_types: Iterable[str]) -> "NameMapping":
        return replace(self, observed_gpu_types={kind.lower(): kind for kind in gpu_types})

    def slurm_gpu_type(self, ours: str) -> str:
        """Slurm's name, which is case-sensitive."""
        configured = {name.lower(): theirs for name, theirs in self.configured_gpu_types.items()}
        return configured.get(ours.lower()) or self.observed_gpu_types.get(ours.lower(), ours)

    def slurm_qos(self, priority_class: str) -> str | None:
        """None: Slurm's default QOS."""
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
    """Raises UnsupportedRequest if the data class and labels need different partitions."""
    if data_class and data_class not in names.data_classes:
        raise UnsupportedRequest(
            f"no partition is configured for data of class {data_class}; an admin can set data_classes in [slurm]"
        )
    requests = {f"data of class {data_class}": names.data_classes.get(data_class, PartitionChoice())}
    requests |= {f"label {label}": _choice_for_label(label, names) for label in job.placement.labels}
    chosen = {request: choice.partition for request, choice in requests.items() if choice.partition}
    if len(set(chosen.values())) > 1:
        raise UnsupportedRequest(
            "in Slurm " + " and ".join(f"{request} is in partition {name}" for request, name in chosen.items())
        )
    features = dict.fromkeys(name for choice in requests.values() for name in choice.features)
    return PartitionChoice(next(iter(chosen.values()), names.partition), tuple(features))


def require_safe_word(text: str, label: str) -> str:
    """Other characters have a meaning in Slurm: `a100:4`, `fast|slow`."""
    if not text or UNSAFE_CHARACTERS.search(text) or text.startswith("-"):
        raise UnsupportedRequest(
            f"Slurm does not support the {label} {text!r}; allowed are letters, digits, dots and dashes"
        )
    return text


def _choice_for_label(label: str, names: NameMapping) -> PartitionChoice:
    return (
        names.labels[label]
        if label in names.labels
        else PartitionChoice(features=(require_safe_word(label, "label"),))
    )


def _read(text: str) -> PartitionChoice:
    """`partition=secure feature=vault`; validated when the settings are loaded."""
    parts = list(_parts(text))
    partition = next((value for name, value in parts if name == "partition"), None)
    return PartitionChoice(partition, tuple(value for name, value in parts if name == "feature"))


def _parts(text: str) -> Iterator[tuple[str, str]]:
    for word in text.split():
        name, _, value = word.partition("=")
        yield name, value


def make_node(node: SlurmNode) -> Node:
    """Slurm reports neither memory nor UUIDs of GPUs: node name and index replace the UUID."""
    state = _state(node.state)
    kinds = [kind for kind, count in node.gpus for _ in range(count)]
    devices = tuple(
        Device(device_uuid(node.name, index), index, kind, kind, 0) for index, kind in enumerate(kinds)
    )
    reason = None if state is NodeState.UP else node.reason or f"state in Slurm: {node.state}"
    labels = dict.fromkeys(node.features, "")
    return Node(node.name, node.cpus, node.memory_mib, devices, state, reason, labels)


def device_uuid(node: str, index: int) -> str:
    return f"{node}:{index}"


def _state(slurm_state: str) -> NodeState:
    """`idle`, `mixed*` (does not respond), `idle+drain`, `drained`, `idle~` (powered down, starts when needed)…"""
    if slurm_state.endswith("*") or any(word in slurm_state for word in _DOWN):
        return NodeState.DOWN
    return NodeState.DRAINED if any(word in slurm_state for word in _DRAINED) else NodeState.UP


def describe_refusal(error: SlurmRefused) -> str:
    message, limit = str(error), find_exceeded_limit(error)
    if limit is not None:
        return f"Slurm refused the job: {explain_reason(limit).message} ({limit})"
    hint = _HINTS.get(message)
    return f"Slurm refused the job: {message}" + (f" ({hint})" if hint else "")


def find_exceeded_limit(error: SlurmRefused) -> str | None:
    """Slurm's name of the limit of an account or QOS that was exceeded; None: none, or not named."""
    match = _LIMIT.search(error.output) if _LIMIT_REFUSAL in str(error).lower() else None
    return None if match is None else match[0]


def is_job_count_limit(error: SlurmRefused) -> bool:
    """Too many jobs in Slurm at the same time: fewer may be accepted now, and all when others have ended."""
    limit = find_exceeded_limit(error)
    return _LIMIT_REFUSAL in str(error).lower() if limit is None else "SubmitJob" in limit


def is_temporary_refusal(error: SlurmRefused) -> bool:
    """Whether to try again later: a limit of the number of jobs in Slurm, a user whose account in Slurm is not
    there yet, or a message that does not concern the job, such as that of a slurmctld that is being killed."""
    message = str(error).lower()
    if is_job_count_limit(error) or _NO_ACCOUNT.lower() in message:
        return True
    return _LIMIT_REFUSAL not in message and not any(word in message for word in _PERMANENT_REFUSALS)


@dataclass(frozen=True, slots=True)
class EndEvidence:
    """Facts about the end of a job that Slurm does not report."""

    stop_cause: EndCause | None = None  # why Heliostat stopped it; None: it did not
    receipt: Receipt = EMPTY_RECEIPT
    controller_restarted: bool = False  # slurmctld had restarted shortly before


def determine_end(attempt: Attempt, job: SlurmJob, evidence: EndEvidence) -> AttemptEnded:
    """The end of a terminal Slurm job."""
    if (
        evidence.stop_cause is None
        and job.exit_code == ALREADY_STARTED_EXIT_CODE
        and not evidence.receipt.has_started
    ):
        return AttemptEnded(attempt.id, datetime.now(UTC), EndCause.NOT_STARTED, detail=_NO_RECEIPT)
    if evidence.stop_cause is None and _is_doubtful(job, evidence):
        return determine_end_from_receipt(attempt, evidence.receipt)
    cause, detail = _cause(attempt, job, evidence)
    code = _code(job, evidence.receipt)
    if job.state in ("NODE_FAIL", "BOOT_FAIL") or not job.has_started:
        code = None
    return AttemptEnded(attempt.id, job.ended_at or datetime.now(UTC), cause, code, detail)


def determine_end_from_receipt(attempt: Attempt, receipt: Receipt) -> AttemptEnded:
    """The end of a job that Slurm has lost. A job that never started is submitted again."""
    if receipt.exited_without_signal:
        return AttemptEnded(
            attempt.id, receipt.written_at or datetime.now(UTC), EndCause.EXITED, receipt.exit_code
        )
    if receipt.has_started:
        return AttemptEnded(attempt.id, datetime.now(UTC), EndCause.LOST, detail="lost by Slurm while it ran")
    return AttemptEnded(
        attempt.id, datetime.now(UTC), EndCause.NOT_STARTED, detail="lost by Slurm before it started"
    )


def was_killed(job: SlurmJob) -> bool:
    """By a user, an admin or Slurm itself."""
    return job.state == "CANCELLED" or (job.state == "FAILED" and bool(job.signal or job.exit_code > 128))


def _is_doubtful(job: SlurmJob, evidence: EndEvidence) -> bool:
    """Whether the receipt is more reliable than Slurm's state."""
    receipt = evidence.receipt
    if job.state == "NODE_FAIL":
        return not receipt.has_started or receipt.exited_without_signal
    if was_killed(job):
        return evidence.controller_restarted and job.has_started
    return job.exit_code == ALREADY_STARTED_EXIT_CODE and receipt.exit_code != ALREADY_STARTED_EXIT_CODE


def _code(job: SlurmJob, receipt: Receipt) -> int | None:
    if job.signal == _NO_FILES_SIGNAL:
        return None
    if job.state == "OUT_OF_MEMORY" and job.signal == _OUT_OF_MEMORY_SIGNAL:
        return receipt.exit_code or _KILLED
    return 128 + job.signal if job.signal else job.exit_code


def _cause(attempt: Attempt, job: SlurmJob, evidence: EndEvidence) -> tuple[EndCause, str | None]:
    if evidence.stop_cause is not None:
        return evidence.stop_cause, None
    full = job.state == "FAILED" and job.exit_code == _KILLED and evidence.receipt.out_of_memory
    if job.state == "OUT_OF_MEMORY" or full:
        limit = attempt.job.resources.memory_mib * attempt.job.placement.tasks
        return EndCause.OUT_OF_MEMORY, f"it used more than its {limit} MiB of memory"
    if _exceeded_time_limit(attempt, job):
        return EndCause.TIMED_OUT, None
    if job.state in _BY_STATE:
        return _BY_STATE[job.state]
    if job.signal == _NO_FILES_SIGNAL:
        return (
            EndCause.REFUSED,
            "its node could not open its log files, which must be on a shared file system",
        )
    return EndCause.EXITED, None


def _exceeded_time_limit(attempt: Attempt, job: SlurmJob) -> bool:
    """Ended by a signal at or after its limit: a server stopped it and was killed before it recorded that."""
    limit = attempt.job.time_limit_seconds
    if limit is None or attempt.job.overtime or job.started_at is None or job.ended_at is None:
        return False
    was_signalled = job.signal or job.exit_code > 128
    return bool(was_signalled) and (job.ended_at - job.started_at).total_seconds() >= limit
