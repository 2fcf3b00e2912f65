"""Checks of the Slurm installation for `helio doctor`: programs, slurmctld, configuration, accounting."""

import os
import re
from collections.abc import Iterator, Mapping

from heliostat.config import Settings, SlurmSettings
from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.engines.slurm.mapping import PartitionChoice, make_name_mapping
from heliostat.engines.slurm.node_probe import last_probe_findings
from heliostat.errors import EngineUnavailable

FindingTuple = tuple[str, str, str, str | None]  # check, level, message, hint
_OLDEST = (22, 5)  # oldest tested version
_DEFAULT_MAX_ARRAY_SIZE = 1001
_MIN_JOB_AGE_SECONDS = 60  # needed without accounting
_NONE = ("", "(null)", "accounting_storage/none")


def examine_slurm(settings: Settings) -> Iterator[FindingTuple]:
    """All findings, including "ok". Checks that need a response of Slurm are skipped if it does not respond."""
    client = SlurmClient.for_home(settings.home)
    if missing := client.missing_programs():
        hint = "Install Slurm's commands on this host: apt-get install slurm-client"
        yield "slurm", "problem", f"Not installed: {', '.join(missing)}.", hint
        return
    if os.geteuid() != 0:
        message = "Heliostat does not run as root: all jobs run as you."
        yield "slurm", "warning", message, "Run Heliostat as root on the login node."
    try:
        yield _version(client.version())
        client.ping()
        yield "slurm", "ok", "slurmctld responds.", None
        yield from _gpus(client)
        yield from _configuration(client)
        yield from _partitions(client, settings.slurm)
        yield _accounting(client)
    except (EngineUnavailable, SlurmRefused) as error:
        hint = "Check `scontrol ping`, munge (`munge -n | unmunge`) and slurmctld's log."
        yield "slurm", "problem", str(error), hint
    yield from last_probe_findings(settings)


def _version(version: str) -> FindingTuple:
    numbers = version.removeprefix("slurm").removeprefix("-wlm").strip().split(".")[:2]
    if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
        major, minor = map(int, numbers)
        if (major, minor) < _OLDEST:
            hint = "It may work but is not tested. Upgrade to 22.05 or newer."
            return "slurm", "warning", f"{version} is older than 22.05.", hint
    return "slurm", "ok", f"{version}.", None


def _gpus(client: SlurmClient) -> Iterator[FindingTuple]:
    nodes = client.nodes()
    count = sum(number for node in nodes for _, number in node.gpus)
    if count:
        yield "slurm", "ok", f"{len(nodes)} nodes with {count} GPUs.", None
    else:
        hint = "If there are GPUs: set GresTypes=gpu and Gres=gpu:TYPE:N in slurm.conf, and write gres.conf."
        yield "slurm", "warning", f"{len(nodes)} nodes without GPUs in Slurm's configuration.", hint


def _configuration(client: SlurmClient) -> Iterator[FindingTuple]:
    gpus = sum(number for node in client.nodes() for _, number in node.gpus)
    return examine_slurm_configuration(client.config(), gpus)


def _partitions(client: SlurmClient, slurm: SlurmSettings) -> Iterator[FindingTuple]:
    """Partitions in cluster.toml must exist."""
    names = make_name_mapping(slurm)
    choices = [*names.data_classes.values(), *names.labels.values(), PartitionChoice(names.partition)]
    configured = {name for choice in choices if choice.partition for name in choice.partition.split(",")}
    if not configured:
        return
    existing = client.partitions()
    for name in sorted(configured - existing.keys()):
        hint = f"Partitions are: {', '.join(sorted(existing))}. Correct [slurm] in cluster.toml."
        yield "slurm", "problem", f"Slurm has no partition {name}, which cluster.toml names.", hint


def _accounting(client: SlurmClient) -> FindingTuple:
    try:
        client.require_past_jobs([1])
    except (EngineUnavailable, SlurmRefused) as error:
        hint = "Without it, the outcome of jobs that slurmctld no longer lists is unknown. See slurmdbd's log."
        return "slurm", "warning", f"The accounting does not respond: {error}", hint
    return "slurm", "ok", "The accounting responds.", None


def examine_slurm_configuration(config: Mapping[str, str], gpus: int) -> Iterator[FindingTuple]:
    """Problems, and the maximum size of arrays."""
    yield from _gres(config, gpus)
    yield from _isolation(config, gpus)
    yield from _job_retention(config)
    yield from _root(config)
    if (size := config.get("MaxArraySize", "")).isdecimal():
        yield "slurm", "ok", f"Arrays of up to {size} elements; larger ones are submitted in parts.", None
        if int(size) < _DEFAULT_MAX_ARRAY_SIZE:
            hint = "Slurm's default is 1001: set MaxArraySize in slurm.conf."
            yield "slurm", "warning", f"MaxArraySize={size} is small.", hint


def _gres(config: Mapping[str, str], gpus: int) -> Iterator[FindingTuple]:
    types = [word.strip() for word in config.get("GresTypes", "").split(",")]
    if "gpu" not in types and not gpus:
        hint = "If there are GPUs: GresTypes=gpu in slurm.conf, Gres=gpu:TYPE:N for each node, and gres.conf."
        yield "slurm", "warning", "GresTypes does not contain gpu: no job can request a GPU.", hint
    if gpus and "gres/gpu" not in config.get("AccountingStorageTRES", ""):
        hint = "Set AccountingStorageTRES=gres/gpu in slurm.conf, then restart slurmctld."
        yield "slurm", "warning", "Slurm does not count GPUs: no shares, limits and reports of GPU time.", hint


def _isolation(config: Mapping[str, str], gpus: int) -> Iterator[FindingTuple]:
    """Settings that keep a job within its allocation."""
    if config.get("ProctrackType") != "proctrack/cgroup":
        hint = "Set ProctrackType=proctrack/cgroup in slurm.conf."
        yield "slurm", "warning", "Processes of a job can outlive it: Slurm does not track them by cgroup.", hint
    if "task/cgroup" not in config.get("TaskPlugin", ""):
        resources = "more cpus, memory and GPUs" if gpus else "more cpus and memory"
        hint = (
            "Set TaskPlugin=task/cgroup; in cgroup.conf ConstrainCores, ConstrainRAMSpace, ConstrainDevices=yes."
        )
        yield "slurm", "warning", f"Jobs can use {resources} than allocated.", hint


def _job_retention(config: Mapping[str, str]) -> Iterator[FindingTuple]:
    age = re.match(r"(\d+) sec", config.get("MinJobAge", ""))
    if config.get("AccountingStorageType", "") in _NONE and age and int(age[1]) < _MIN_JOB_AGE_SECONDS:
        hint = "Set MinJobAge=300 in slurm.conf, or better, set up slurmdbd."
        message = f"Slurm drops ended jobs after {age[1]} s and has no accounting: some results will be unknown."
        yield "slurm", "problem", message, hint


def _root(config: Mapping[str, str]) -> Iterator[FindingTuple]:
    if config.get("DisableRootJobs", "").lower() == "yes":
        hint = "Jobs of other users are not affected. To allow probes: DisableRootJobs=NO in slurm.conf."
        message = "Slurm does not run jobs of root: `helio doctor --probe` cannot check the nodes."
        yield "slurm", "warning", message, hint
