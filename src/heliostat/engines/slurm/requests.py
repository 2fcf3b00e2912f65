"""What Slurm could never run, said before it is submitted: pure."""

import math
from collections.abc import Iterator

from heliostat.engines.slurm.associations import SlurmAccounts
from heliostat.engines.slurm.parse import SlurmNode
from heliostat.engines.slurm.partitions import Partition, Picture, is_at
from heliostat.engines.slurm.terms import Place, Terms, Unfit, place_of, word
from heliostat.errors import Invalid
from heliostat.models import Job, Layout, Resources


def check_request(job: Job, data_class: int, picture: Picture, terms: Terms) -> None:
    """Raises Invalid. Where a job may go to several partitions, one that takes it is enough."""
    if 0 < job.resources.gpus < 1:
        raise _invalid("gpus", "Slurm gives out whole GPUs here, not parts.", "Ask for a whole one: --gpus 1.")
    if job.resources.gpu_memory_mib is not None:
        hint = "Ask for a type instead: --gpu-type."
        raise _invalid("gpu_memory", "Slurm does not know how much memory a GPU has.", hint)
    try:
        place = place_of(job, data_class, terms)
        kind = word(terms.gpu_type(job.resources.gpu_type), "GPU type") if job.resources.gpu_type else None
    except Unfit as error:
        hint = "Ask for other labels or another GPU type, or ask an admin: see cluster.toml."
        raise _invalid("labels", f"Slurm cannot run this: {error}.", hint) from error
    if not picture.partitions:
        return
    refusals = []
    for name in _names(place, picture):
        refusal = next(_refusals(job, place, kind, name, picture), None)
        if refusal is None:
            return
        refusals.append(refusal)
    raise refusals[0]


def check_class(job: Job, terms: Terms, accounts: SlurmAccounts) -> None:
    """Raises Invalid for a priority class whose QOS Slurm would refuse. What is not known is left to Slurm."""
    qos = terms.qos_of(job.priority_class)
    if qos is None or (said := accounts.refused_qos(job.unix_user, job.project, qos)) is None:
        return
    hint = "Ask for the class normal; or an admin tells Slurm the classes: helio slurm apply, or qos in [slurm]."
    message = f"Slurm would refuse the class {job.priority_class}: {said}."
    raise _invalid("priority_class", message, hint, "not known to Slurm for this project")


def _names(place: Place, picture: Picture) -> list[str]:
    chosen = place.partition or picture.default
    if chosen is None:
        hint = "An admin can set partition in [slurm] of cluster.toml."
        raise _invalid("labels", "Slurm has no default partition, and none is set here.", hint)
    return chosen.split(",")


def _refusals(job: Job, place: Place, kind: str | None, name: str, picture: Picture) -> Iterator[Invalid]:
    partition = picture.partitions.get(name)
    if partition is None:
        known = ", ".join(sorted(picture.partitions))
        hint = f"Partitions are: {known}. An admin can correct [slurm] in cluster.toml."
        yield _invalid("labels", f"Slurm has no partition {name}, where this job would go.", hint)
        return
    if not partition.is_open:
        yield _invalid(
            "labels", f"Slurm's partition {name} takes no new jobs.", "Try again later, or ask an admin."
        )
    yield from _too_long(job, partition)
    nodes = [node for node in picture.nodes if node.name in partition.nodes]
    suitable = [node for node in nodes if is_at(node.name, Place(None, place.features), picture)]
    if not suitable:
        known = ", ".join(sorted({feature for node in nodes for feature in node.features})) or "none"
        message = f"No node in Slurm's partition {name} has the features {' and '.join(place.features)}."
        yield _invalid("labels", message, f"Features there: {known}.")
    yield from _too_large(job, kind, suitable, partition)


def _too_long(job: Job, partition: Partition) -> Iterator[Invalid]:
    limit, most = job.time_limit_seconds, partition.max_seconds
    if limit is not None and most is not None and limit > most and not job.overtime:
        message = f"Slurm's partition {partition.name} lets jobs run for at most {_in_words(most)}."
        hint = "Ask for less, and let the job save its work so that it can go on from there."
        yield _invalid("time_limit", message, hint, f"must be at most {most} seconds")


def _too_large(job: Job, kind: str | None, nodes: list[SlurmNode], partition: Partition) -> Iterator[Invalid]:
    tasks, spread = job.placement.tasks, job.placement.layout is Layout.SPREAD
    counts = sorted((_tasks_on(node, job.resources, kind) for node in nodes), reverse=True)
    counts = [min(count, 1) if spread else count for count in counts][: partition.max_nodes]
    if sum(counts) >= tasks:
        return
    if not any(counts):
        cpus = max((node.cpus for node in nodes), default=0)
        memory = max((node.memory_mib for node in nodes), default=0)
        message = f"No node in Slurm's partition {partition.name} has what this asks for, all at once."
        hint = f"The largest has {cpus} cpus, the largest memory is {memory} MiB; GPUs: {_gpus_in_words(nodes)}."
        yield _invalid("gpus" if job.resources.gpus else "cpus", message, hint)
        return
    limit = "" if partition.max_nodes is None else f" on the {partition.max_nodes} nodes a job may have"
    message = f"Slurm's partition {partition.name} holds {sum(counts)} tasks of this size{limit}, not {tasks}."
    yield _invalid("tasks", message, "Ask for fewer tasks, or for less in each.")


def _tasks_on(node: SlurmNode, wanted: Resources, kind: str | None) -> int:
    """How many the empty node holds."""
    fitting = [node.cpus // max(1, wanted.cpus), node.memory_mib // max(1, wanted.memory_mib)]
    if wanted.gpus:
        gpus = sum(count for name, count in node.gpus if kind is None or name == kind)
        fitting.append(gpus // math.ceil(wanted.gpus))
    return min(fitting)


def _gpus_in_words(nodes: list[SlurmNode]) -> str:
    most: dict[str, int] = {}
    for node in nodes:
        for name, count in node.gpus:
            most[name] = max(most.get(name, 0), count)
    return ", ".join(f"{count} {name} on a node" for name, count in sorted(most.items())) or "none"


def _in_words(seconds: int) -> str:
    """`1d`, `36h`, `90m`."""
    size, unit = next((one for one in ((86400, "d"), (3600, "h"), (60, "m")) if seconds % one[0] == 0), (1, "s"))
    return f"{seconds // size}{unit}"


def _invalid(name: str, message: str, hint: str, said: str | None = None) -> Invalid:
    return Invalid(message, hint, fields={name: said or message})
