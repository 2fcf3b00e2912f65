"""What Slurm's own settings mean for jobs of Heliostat: pure."""

import re
from collections.abc import Iterator, Mapping

Found = tuple[str, str, str, str | None]  # check, level, message, hint
_LINE = re.compile(r"(\w+)\s*= (.*)")
_SHORT_ARRAYS = 1001  # Slurm's own default
_KEPT_SECONDS = 60  # that Slurm must remember jobs by itself, where nothing else does
_NONE = ("", "(null)", "accounting_storage/none")


def config_of(text: str) -> dict[str, str]:
    """Of `scontrol show config`: written by Slurm and its admins."""
    found = (_LINE.fullmatch(line.rstrip()) for line in text.splitlines())
    return {one[1]: one[2] for one in found if one}


def judge_configuration(config: Mapping[str, str], gpus: int) -> Iterator[Found]:
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


def _gres(config: Mapping[str, str], gpus: int) -> Iterator[Found]:
    types = [word.strip() for word in config.get("GresTypes", "").split(",")]
    if "gpu" not in types and not gpus:
        hint = "If there are GPUs: GresTypes=gpu in slurm.conf, Gres=gpu:TYPE:N for each node, and gres.conf."
        yield "slurm", "warning", "GresTypes does not name gpu: no job can ask for one.", hint
    if gpus and "gres/gpu" not in config.get("AccountingStorageTRES", ""):
        hint = "AccountingStorageTRES=gres/gpu in slurm.conf; then restart slurmctld."
        yield "slurm", "warning", "Slurm does not count GPUs: no shares, limits and reports of GPU time.", hint


def _walls(config: Mapping[str, str], gpus: int) -> Iterator[Found]:
    """What keeps a job within what it was given."""
    if config.get("ProctrackType") != "proctrack/cgroup":
        hint = "ProctrackType=proctrack/cgroup in slurm.conf."
        yield "slurm", "warning", "Processes of a job can outlive it: Slurm does not track them by cgroup.", hint
    if "task/cgroup" not in config.get("TaskPlugin", ""):
        what = "more cpus, memory and GPUs" if gpus else "more cpus and memory"
        hint = "TaskPlugin=task/cgroup; in cgroup.conf ConstrainCores, ConstrainRAMSpace, ConstrainDevices=yes."
        yield "slurm", "warning", f"Jobs can use {what} than they were given.", hint


def _memory_of_jobs(config: Mapping[str, str]) -> Iterator[Found]:
    kept = re.match(r"(\d+) sec", config.get("MinJobAge", ""))
    if config.get("AccountingStorageType", "") in _NONE and kept and int(kept[1]) < _KEPT_SECONDS:
        hint = "MinJobAge=300 in slurm.conf; better still, slurmdbd."
        message = (
            f"Slurm forgets ended jobs after {kept[1]} s and keeps no accounting: some ends will not be known."
        )
        yield "slurm", "problem", message, hint


def _root(config: Mapping[str, str]) -> Iterator[Found]:
    if config.get("DisableRootJobs", "").lower() == "yes":
        hint = "Other users' jobs run. To probe: DisableRootJobs=NO in slurm.conf."
        yield (
            "slurm",
            "warning",
            "Slurm runs no jobs of root: `helio doctor --probe` cannot look from the nodes.",
            hint,
        )
