"""Lays out an attempt's files and says what its wrapper is to run."""

import contextlib
import errno
import os
import socket
from dataclasses import dataclass, replace

from heliostat.config import Settings
from heliostat.engines.containers import check_rules
from heliostat.engines.environment import Person
from heliostat.engines.folders import JobFolder, check_software, lay_out, make_log
from heliostat.engines.local.cgroups import Limits
from heliostat.engines.local.containers import Place as ContainerPlace
from heliostat.engines.local.containers import commands_of, tool_rooms
from heliostat.engines.local.script import NUMBERS, Places, likeness, payload_script
from heliostat.engines.local.scripts import Script, Scripts, in_memory
from heliostat.engines.local.wrappers import Order
from heliostat.models import Attempt, JobId
from heliostat.runtimes.contract import Command

_FIRST_PORT, _PORTS = 20_000, 10_000  # below those the kernel gives to outgoing connections


@dataclass(frozen=True, slots=True)
class Payload:
    """What is to run, as whom, with what at hand."""

    attempt: Attempt
    person: Person
    places: Places
    limit_seconds: int  # 0: none
    commands: tuple[Command, ...] = ()  # for each task, of a job in a container


@dataclass(frozen=True, slots=True)
class Site:
    """What is not the attempt's own."""

    settings: Settings
    mark: str
    device_memory_mib: int | None  # of its first device
    container: ContainerPlace


def limits_of(attempt: Attempt, settings: Settings) -> Limits:
    """Those of all its tasks together."""
    wanted, tasks = attempt.job.resources, len(attempt.task_places)
    return Limits(wanted.memory_mib * tasks, wanted.cpus * tasks, settings.pids_limit)


def hard_limit_seconds(attempt: Attempt, settings: Settings) -> int:
    """When the wrapper ends it, server or no server; with overtime, only what nobody may exceed. 0: never."""
    limit = attempt.job.time_limit_seconds or 0
    return max(limit, settings.max_time_limit_seconds) if limit and attempt.job.overtime else limit


def prepare(attempt: Attempt, person: Person, folder: JobFolder, site: Site) -> Payload:
    """Lay out its files and say what it finds where. Raises Refused."""
    check_rules(attempt, person, site.settings)
    check_software(attempt.job, str(site.settings.home.path))
    workdir, script = lay_out(attempt, person, folder, site.settings.home)
    places = Places(
        workdir=workdir,
        script=script,
        installation=str(site.settings.home.path),
        mark=site.mark,
        checkpoints=folder.checkpoints,
        device_memory_mib=site.device_memory_mib,
        port=free_port(attempt.job.id) if attempt.places else None,
        tool=tool_rooms(attempt, person, site.container),
    )
    limit = hard_limit_seconds(attempt, site.settings)
    if not attempt.job.spec.wants_container:
        return Payload(attempt, person, places, limit)
    return Payload(attempt, person, places, limit, commands_of(attempt, person, places, site.container))


def make_order(payload: Payload, folder: JobFolder, scripts: Scripts) -> Order:
    """Make its log files, and tell a wrapper what to run as whom."""
    job, person = payload.attempt.job, payload.person
    for stream in ("stdout", "stderr"):
        make_log(folder.log(job.attempt, stream), person)
    other = (person.uid, person.gid) if person.uid != os.geteuid() else None
    limits = (payload.limit_seconds, job.spec.grace_seconds)
    script = _script_of(payload, folder, scripts)
    try:
        sealed = in_memory(payload.commands[0].sealed) if payload.commands else None
    except BaseException:
        script.leave()
        raise
    return Order(payload.attempt.id, script, *limits, other, sealed)


def _script_of(payload: Payload, folder: JobFolder, scripts: Scripts) -> Script:
    attempt, person, places = payload.attempt, payload.person, payload.places
    like = likeness(attempt, person, places)
    if like is None:
        return scripts.own(payload_script(attempt, person, places, payload.commands))
    is_in_own_folder = places.workdir.startswith(f"{folder.path}/")
    return scripts.shared(
        (like, None if is_in_own_folder else places.workdir),
        lambda: payload_script(attempt, person, _by_numbers(payload, folder)),
    )


def _by_numbers(payload: Payload, folder: JobFolder) -> Places:
    """Where things are of whichever job and attempt it is."""
    job, number = NUMBERS
    general = f"{os.path.dirname(folder.path)}/{job}"

    def by_number(path: str) -> str:
        return general + path.removeprefix(folder.path) if path.startswith(f"{folder.path}/") else path

    places = payload.places
    return replace(
        places,
        workdir=by_number(places.workdir),
        checkpoints=by_number(places.checkpoints),
        mark=f"{places.mark.removesuffix(payload.attempt.id)}{job}.{number}",
        numbers=NUMBERS,
    )


def free_port(job_id: JobId) -> int:
    """Where the tasks of this job can meet. Those of two jobs differ as long as fewer than ten thousand run."""
    for offset in range(_PORTS):
        port = _FIRST_PORT + (job_id + offset) % _PORTS
        with socket.socket() as tried, contextlib.suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise OSError(errno.EADDRINUSE, "no port is free for its tasks to meet")
