"""What is wrong with the way to Slurm, and what to do about it."""

import os
from collections.abc import Iterator

from heliostat.config import Settings, SlurmSettings
from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.configuration import config_of, judge_configuration
from heliostat.engines.slurm.probe import last_probe
from heliostat.engines.slurm.programs import SlurmRefused
from heliostat.engines.slurm.terms import Place, terms_of
from heliostat.errors import EngineUnavailable

Found = tuple[str, str, str, str | None]  # check, level, message, hint
_OLDEST = (22, 5)  # that we know to work


def examine_slurm(settings: Settings) -> Iterator[Found]:
    """All findings, also the good ones; what needs an answer of Slurm is left out when there is none."""
    commands = Commands.of(settings.home)
    if missing := commands.missing():
        hint = "Install Slurm's commands on this machine: apt-get install slurm-client"
        yield "slurm", "problem", f"Not installed: {', '.join(missing)}.", hint
        return
    if os.geteuid() != 0:
        yield "slurm", "warning", "Without root all jobs run as you.", "Run Heliostat as root on the login node."
    try:
        yield _version(commands.version())
        commands.ping()
        yield "slurm", "ok", "slurmctld answers.", None
        yield from _gpus(commands)
        yield from _configuration(commands)
        yield from _partitions(commands, settings.slurm)
        yield _accounting(commands)
    except (EngineUnavailable, SlurmRefused) as error:
        hint = "Look at `scontrol ping`, at munge (`munge -n | unmunge`) and at slurmctld's log."
        yield "slurm", "problem", str(error), hint
    yield from last_probe(settings)


def _version(said: str) -> Found:
    numbers = said.removeprefix("slurm").removeprefix("-wlm").strip().split(".")[:2]
    if len(numbers) == 2 and all(number.isdecimal() for number in numbers):
        major, minor = map(int, numbers)
        if (major, minor) < _OLDEST:
            return "slurm", "warning", f"{said} is older than 22.05.", "It may work; nobody has tried."
    return "slurm", "ok", f"{said}.", None


def _gpus(commands: Commands) -> Iterator[Found]:
    nodes = commands.nodes()
    count = sum(number for node in nodes for _, number in node.gpus)
    if count:
        yield "slurm", "ok", f"{len(nodes)} nodes with {count} GPUs.", None
    else:
        hint = "If there are some: GresTypes=gpu and Gres=gpu:TYPE:N in slurm.conf, and gres.conf."
        yield "slurm", "warning", f"{len(nodes)} nodes, and no GPU is known to Slurm.", hint


def _configuration(commands: Commands) -> Iterator[Found]:
    gpus = sum(number for node in commands.nodes() for _, number in node.gpus)
    return judge_configuration(config_of(commands.ask(["scontrol", "show", "config"])), gpus)


def _partitions(commands: Commands, slurm: SlurmSettings) -> Iterator[Found]:
    """Those that the settings name must be there."""
    terms = terms_of(slurm)
    places = [*terms.data_classes.values(), *terms.labels.values(), Place(terms.partition)]
    named = {name for place in places if place.partition for name in place.partition.split(",")}
    if not named:
        return
    known = commands.partitions()
    for name in sorted(named - known.keys()):
        hint = f"Partitions are: {', '.join(sorted(known))}. Correct [slurm] in cluster.toml."
        yield "slurm", "problem", f"Slurm has no partition {name}, which cluster.toml names.", hint


def _accounting(commands: Commands) -> Found:
    try:
        commands.accounted_jobs([1])
    except (EngineUnavailable, SlurmRefused) as error:
        hint = "Without it the end of jobs that Slurm has forgotten is not known: see slurmdbd's log."
        return "slurm", "warning", f"The accounting does not answer: {error}", hint
    return "slurm", "ok", "The accounting answers.", None
