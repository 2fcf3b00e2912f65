"""What is wrong with the way to Slurm and with its settings, and what to do about it."""

import os
import re
from collections.abc import Iterator, Mapping

from heliostat.config import Settings, SlurmSettings
from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.engines.slurm.mapping import PartitionChoice, make_name_mapping
from heliostat.engines.slurm.node_probe import last_probe_findings
from heliostat.errors import EngineUnavailable

FindingTuple = tuple[str, str, str, str | None]  # check, level, message, hint
_OLDEST = (22, 5)  # that we know to work
_SHORT_ARRAYS = 1001  # Slurm's own default
_KEPT_SECONDS = 60  # that Slurm must remember jobs by itself, where nothing else does
_NONE = ("", "(null)", "accounting_storage/none")


def examine_slurm(settings: Settings) -> Iterator[FindingTuple]:
    """All findings, also the good ones; what needs an answer of Slurm is left out when there is none."""
    client = SlurmClient.for_home(settings.home)
    if missing := client.missing_programs():
        hint = "Install Slurm's commands on this machine: apt-get install slurm-client"
        yield "slurm", "problem", f"Not installed: {', '.join(missing)}.", hint
        return
    if os.geteuid() != 0:
        yield "slurm", "warning", "Without root all jobs run as you.", "Run Heliostat as root on the login node."
    try:
        yield _version(client.version())
        client.ping()
        yield "slurm", "ok", "slurmctld answers.", None
        yield from _gpus(client)
        yield from _configuration(client)
        yield from _partitions(client, settings.slurm)
        yield _accounting(client)
    except (EngineUnavailable, SlurmRefused) as error:
        hint = "Look at `scontrol ping`, at munge (`munge -n | unmunge`) and at slurmctld's log."
        yield "slurm", "problem", str(error), hint
    yield from last_probe_findings(settings)


def _version(said: str) -> FindingTuple:
    numbers = said.removeprefix("slurm").removeprefix("-wlm").strip().split(".")[:2]
    if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
        major, minor = map(int, numbers)
        if (major, minor) < _OLDEST:
            return "slurm", "warning", f"{said} is older than 22.05.", "It may work; nobody has tried."
    return "slurm", "ok", f"{said}.", None


def _gpus(client: SlurmClient) -> Iterator[FindingTuple]:
    nodes = client.nodes()
    count = sum(number for node in nodes for _, number in node.gpus)
    if count:
        yield "slurm", "ok", f"{len(nodes)} nodes with {count} GPUs.", None
    else:
        hint = "If there are some: GresTypes=gpu and Gres=gpu:TYPE:N in slurm.conf, and gres.conf."
        yield "slurm", "warning", f"{len(nodes)} nodes, and no GPU is known to Slurm.", hint


def _configuration(client: SlurmClient) -> Iterator[FindingTuple]:
    gpus = sum(number for node in client.nodes() for _, number in node.gpus)
    return examine_slurm_configuration(client.config(), gpus)


def _partitions(client: SlurmClient, slurm: SlurmSettings) -> Iterator[FindingTuple]:
    """Those that the settings name must be there."""
    names = make_name_mapping(slurm)
    places = [*names.data_classes.values(), *names.labels.values(), PartitionChoice(names.partition)]
    named = {name for place in places if place.partition for name in place.partition.split(",")}
    if not named:
        return
    known = client.partitions()
    for name in sorted(named - known.keys()):
        hint = f"Partitions are: {', '.join(sorted(known))}. Correct [slurm] in cluster.toml."
        yield "slurm", "problem", f"Slurm has no partition {name}, which cluster.toml names.", hint


def _accounting(client: SlurmClient) -> FindingTuple:
    try:
        client.require_past_jobs([1])
    except (EngineUnavailable, SlurmRefused) as error:
        hint = "Without it the end of jobs that Slurm has forgotten is not known: see slurmdbd's log."
        return "slurm", "warning", f"The accounting does not answer: {error}", hint
    return "slurm", "ok", "The accounting answers.", None


def examine_slurm_configuration(config: Mapping[str, str], gpus: int) -> Iterator[FindingTuple]:
    """All that is not as it should be, and how long arrays may be."""
    yield from _gres(config, gpus)
    yield from _walls(config, gpus)
    yield from _memory_of_jobs(config)
    yield from _root(config)
    if (size := config.get("MaxArraySize", "")).isdecimal():
        yield "slurm", "ok", f"Arrays of up to {size} elements; larger ones are handed over in parts.", None
        if int(size) < _SHORT_ARRAYS:
            yield (
                "slurm",
                "warning",
                f"MaxArraySize={size} is small.",
                "Slurm's default is 1001: set it in slurm.conf.",
            )


def _gres(config: Mapping[str, str], gpus: int) -> Iterator[FindingTuple]:
    types = [word.strip() for word in config.get("GresTypes", "").split(",")]
    if "gpu" not in types and not gpus:
        hint = "If there are GPUs: GresTypes=gpu in slurm.conf, Gres=gpu:TYPE:N for each node, and gres.conf."
        yield "slurm", "warning", "GresTypes does not name gpu: no job can ask for one.", hint
    if gpus and "gres/gpu" not in config.get("AccountingStorageTRES", ""):
        hint = "AccountingStorageTRES=gres/gpu in slurm.conf; then restart slurmctld."
        yield "slurm", "warning", "Slurm does not count GPUs: no shares, limits and reports of GPU time.", hint


def _walls(config: Mapping[str, str], gpus: int) -> Iterator[FindingTuple]:
    """What keeps a job within what it was given."""
    if config.get("ProctrackType") != "proctrack/cgroup":
        hint = "ProctrackType=proctrack/cgroup in slurm.conf."
        yield "slurm", "warning", "Processes of a job can outlive it: Slurm does not track them by cgroup.", hint
    if "task/cgroup" not in config.get("TaskPlugin", ""):
        what = "more cpus, memory and GPUs" if gpus else "more cpus and memory"
        hint = "TaskPlugin=task/cgroup; in cgroup.conf ConstrainCores, ConstrainRAMSpace, ConstrainDevices=yes."
        yield "slurm", "warning", f"Jobs can use {what} than they were given.", hint


def _memory_of_jobs(config: Mapping[str, str]) -> Iterator[FindingTuple]:
    kept = re.match(r"(\d+) sec", config.get("MinJobAge", ""))
    if config.get("AccountingStorageType", "") in _NONE and kept and int(kept[1]) < _KEPT_SECONDS:
        hint = "MinJobAge=300 in slurm.conf; better still, slurmdbd."
        message = (
            f"Slurm forgets ended jobs after {kept[1]} s and keeps no accounting: some ends will not be known."
        )
        yield "slurm", "problem", message, hint


def _root(config: Mapping[str, str]) -> Iterator[FindingTuple]:
    if config.get("DisableRootJobs", "").lower() == "yes":
        hint = "Other users' jobs run. To probe: DisableRootJobs=NO in slurm.conf."
        yield (
            "slurm",
            "warning",
            "Slurm runs no jobs of root: `helio doctor --probe` cannot look from the nodes.",
            hint,
        )
