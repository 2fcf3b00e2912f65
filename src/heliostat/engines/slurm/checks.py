"""What is wrong with the way to Slurm, and what to do about it."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from heliostat.config import Settings
from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.configuration import config_of, judge_configuration
from heliostat.engines.slurm.probe import last_probe
from heliostat.engines.slurm.programs import SlurmRefused
from heliostat.engines.slurm.rest import RestCommands
from heliostat.engines.slurm.rest_http import RestApi
from heliostat.engines.slurm.terms import Place, terms_of
from heliostat.engines.slurm.ways import way_to_slurm
from heliostat.errors import EngineUnavailable

Found = tuple[str, str, str, str | None]  # check, level, message, hint
_OLDEST = (22, 5)  # that we know to work
_SOON = timedelta(days=7)


def examine_slurm(settings: Settings, commands: Commands | None = None) -> Iterator[Found]:
    """All findings, also the good ones; what needs an answer of Slurm is left out when there is none."""
    commands = commands or way_to_slurm(settings)
    missing = ", ".join(commands.missing())
    if isinstance(commands, RestCommands):
        yield from _rest(commands.api, missing)
    elif missing:
        hint = "Install Slurm's commands on this machine: apt-get install slurm-client"
        yield "slurm", "problem", f"Not installed: {missing}.", hint
        return
    if os.geteuid() != 0:
        yield "slurm", "warning", "Without root all jobs run as you.", "Run Heliostat as root on the login node."
    try:
        yield _version(commands.version())
        commands.ping()
        yield "slurm", "ok", "slurmctld answers.", None
        yield from _gpus(commands)
        yield from _configuration(commands)
        yield from _partitions(commands, settings)
        yield _accounting(commands)
    except (EngineUnavailable, SlurmRefused) as error:
        hint = "Look at `scontrol ping`, at munge (`munge -n | unmunge`) and at slurmctld's log."
        if isinstance(commands, RestCommands):
            hint = (
                "Look at slurmrestd's log, and make a new token: one that is not valid looks the same from here."
            )
        yield "slurm", "problem", str(error), hint
    yield from last_probe(settings)


def _rest(api: RestApi, missing: str) -> Iterator[Found]:
    """Of slurmrestd and the token for it, without asking it."""
    yield "slurm", "ok", f"Slurm is asked through slurmrestd at {api.address}, API v0.0.38.", None
    if missing:
        hint = "They are needed for helio exec, sessions and reservations, to drain nodes, and for helio slurm."
        yield "slurm", "warning", f"Not installed: {missing}.", hint
    if api.is_in_the_open:
        hint = "Use https://, or run slurmrestd on this machine: who reads the token can act as anybody."
        yield "slurm", "warning", f"The token crosses the network unencrypted to {api.address}.", hint
    try:
        expires_at = api.token_file.token().expires_at
    except EngineUnavailable as error:
        yield "slurm", "problem", error.message, error.hint
        return
    yield _expiry(expires_at, datetime.now(UTC))


def _expiry(expires_at: datetime | None, now: datetime) -> Found:
    hint = "Make a new one with `scontrol token lifespan=…`; Heliostat takes it without a restart."
    if expires_at is None:
        return "slurm", "ok", "The token for slurmrestd does not expire.", None
    said = f"on {expires_at:%Y-%m-%d at %H:%M} UTC"
    if expires_at <= now:
        return "slurm", "problem", f"The token for slurmrestd expired {said}.", hint
    if expires_at - now < _SOON:
        return "slurm", "warning", f"The token for slurmrestd expires {said}.", hint
    return "slurm", "ok", f"The token for slurmrestd expires {said}.", None


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


def _partitions(commands: Commands, settings: Settings) -> Iterator[Found]:
    """Those that the settings name must be there."""
    terms = terms_of(settings)
    places = [*terms.data_classes.values(), *terms.labels.values(), Place(terms.partition)]
    named = {name for place in places if place.partition for name in place.partition.split(",")}
    if not named:
        return
    known = commands.partitions()
    for name in sorted(named - known.keys()):
        hint = f"Partitions are: {', '.join(sorted(known))}. Mend the settings slurm_… in cluster.toml."
        yield "slurm", "problem", f"Slurm has no partition {name}, which cluster.toml names.", hint


def _accounting(commands: Commands) -> Found:
    try:
        commands.accounted_jobs([1])
    except (EngineUnavailable, SlurmRefused) as error:
        hint = "Without it the end of jobs that Slurm has forgotten is not known: see slurmdbd's log."
        return "slurm", "warning", f"The accounting does not answer: {error}", hint
    return "slurm", "ok", "The accounting answers.", None
