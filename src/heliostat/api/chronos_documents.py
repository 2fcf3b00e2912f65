"""Jobs as Chronos writes them: what they mean here, and what they look like when somebody asks. Pure.

What cannot be honoured is refused with the reason; nothing is left out silently.
"""

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from heliostat.api.validation import read_job
from heliostat.errors import Invalid
from heliostat.models.schedules import CatchUpMode, OverlapPolicy, Schedule, ScheduleState
from heliostat.schedules.iso8601 import parse_period
from heliostat.services.schedules.requests import ScheduleRequest

ChronosDocument = dict[str, Any]

DOCUMENT_DEFAULTS: ChronosDocument = {
    "shell": True,
    "epsilon": "PT60S",
    "executor": "",
    "executorFlags": "",
    "taskInfoData": "",
    "retries": 2,
    "owner": "",
    "ownerName": "",
    "description": "",
    "async": False,
    "cpus": 0.1,
    "disk": 256,
    "mem": 128,
    "gpus": 0,
    "disabled": False,
    "softError": False,
    "dataProcessingJobType": False,
    "concurrent": False,
    "highPriority": False,
    "runAsUser": "",
    "uris": [],
    "fetch": [],
    "environmentVariables": [],
    "arguments": [],
    "constraints": [],
}
COUNTER_FIELDS = ("successCount", "errorCount", "lastSuccess", "lastError", "errorsSinceLastSuccess")
_TEXTS = ("name", "command", "owner", "ownerName", "description", "runAsUser", "schedule", "scheduleTimeZone")
_KNOWN = {*DOCUMENT_DEFAULTS, *COUNTER_FIELDS, *_TEXTS, "epsilon", "parents", "container", "dataJob"}
_NUMBERS = {"cpus": 1e5, "mem": 2**40, "disk": 2**50, "gpus": 1e4, "retries": 100}
_TRUTHS = (
    "shell",
    "async",
    "disabled",
    "softError",
    "dataProcessingJobType",
    "dataJob",
    "concurrent",
    "highPriority",
)
_ZONES = {"PST": "America/Los_Angeles", "CST": "America/Chicago", "AST": "America/Anchorage"}
_HIGH = 100  # of priorities, which count among the jobs of one's own project
_LONGEST = 128 * 1024

_TAR = re.compile(r".*\.(tar|tgz|tar\.gz|tbz2|tar\.bz2|txz|tar\.xz)", re.IGNORECASE)
_MOST = 100
_SWITCHES = ("extract", "executable", "cache")  # nothing is kept for other runs: without `cache` it is the same

FieldErrorFactory = Callable[[str, str], Exception]

_CONTAINER_FIELDS = {
    "type",
    "image",
    "network",
    "volumes",
    "forcePullImage",
    "parameters",
    "networkName",
    "networkInfos",
}
_NETWORKS = {"HOST": "host", "BRIDGE": "private", "USER": "private", "NONE": "none"}
_INSTEAD = {"forcePullImage": ", and name the version in the image", "parameters": ", and use volumes and network"}


def document_to_schedule_request(document: ChronosDocument, unix_user: str | None) -> ScheduleRequest:
    """Raises Invalid, with the field and the reason."""
    _check_types(document)
    _check_possible(document, unix_user)
    schedule, parents = document.get("schedule"), document.get("parents")
    if (schedule is None) == (not parents):
        raise _wrong("schedule", "say either schedule or parents")
    zone = document.get("scheduleTimeZone") or None
    return ScheduleRequest(
        name=document["name"],
        request=read_job(_body(document)),
        timing=None if schedule is None else _timing(schedule, zone),
        zone=_ZONES.get(zone, zone) if zone else ("UTC" if schedule is not None else None),
        overlap=OverlapPolicy.ALLOW if document.get("concurrent") else OverlapPolicy.SKIP,
        catch_up=CatchUpMode.ALL,
        epsilon_seconds=_epsilon(document),
        retries=int(_number(document, "retries")),
        soft_error=bool(document.get("softError")),
        parents=tuple(parents or ()),
        paused=bool(document.get("disabled")),
        document={name: value for name, value in document.items() if name not in COUNTER_FIELDS},
    )


def schedule_to_document(one: Schedule, names: Mapping[int, str]) -> ChronosDocument:
    """As Chronos would list it; `names` are those of its parents."""
    document: ChronosDocument = {**DOCUMENT_DEFAULTS, **(one.document or _as_ours(one)), "name": one.name}
    document["disabled"] = one.state is ScheduleState.PAUSED
    document |= {
        "successCount": one.succeeded,
        "errorCount": one.failed,
        "errorsSinceLastSuccess": one.failed_in_a_row,
        "lastSuccess": format_chronos_time(one.succeeded_at),
        "lastError": format_chronos_time(one.failed_at),
    }
    if one.timing is None:
        document["parents"] = [names.get(parent, str(parent)) for parent in one.parents]
        return document
    document["schedule"] = one.timing
    document.setdefault("scheduleTimeZone", "" if one.zone == "UTC" else one.zone)
    return document


def format_chronos_time(at: datetime | None) -> str:
    """`2014-03-08T16:57:17.507Z`; empty: never."""
    return "" if at is None else f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def _as_ours(one: Schedule) -> ChronosDocument:
    """Of one that was not made from a document: as near as Chronos' words come."""
    request = one.request
    command = request.spec.command
    is_line = command[:2] == ("/bin/sh", "-c")
    return {
        "command": command[2] if is_line else (command[0] if command else ""),
        "shell": is_line,
        "arguments": [] if is_line else list(command[1:]),
        "cpus": request.cpus or 1,
        "mem": request.memory_mib or DOCUMENT_DEFAULTS["mem"],
        "gpus": request.gpus,
        "retries": one.retries,
        "softError": one.soft_error,
        "concurrent": one.overlap is OverlapPolicy.ALLOW,
        "epsilon": f"PT{one.epsilon_seconds or 60}S",
        "environmentVariables": [{"name": name, "value": value} for name, value in request.spec.env.items()],
    }


def _check_types(document: ChronosDocument) -> None:
    for name, value in document.items():
        if name not in _KNOWN:
            raise _wrong(str(name)[:60], "is not a field of Chronos that is known here")
        if name in _TEXTS and not (isinstance(value, str) and len(value) <= _LONGEST):
            raise _wrong(name, "must be text")
        if name in _TRUTHS and not isinstance(value, bool):
            raise _wrong(name, "must be true or false")
    for name in ("name", "command"):
        if not document.get(name):
            raise _wrong(name, "is missing")
    for name in ("parents", "arguments", "uris"):
        values = document.get(name) or []
        if not isinstance(values, list) or len(values) > 1000 or not all(isinstance(one, str) for one in values):
            raise _wrong(name, "must be a list of texts")


def _check_possible(document: ChronosDocument, unix_user: str | None) -> None:
    for name in ("executor", "executorFlags", "taskInfoData"):
        if document.get(name):
            raise _wrong(name, "there are no Mesos executors here; leave it empty")
    if document.get("async"):
        raise _wrong("async", "the end of every job is known here without being reported; set it to false")
    if document.get("dataProcessingJobType") or document.get("dataJob"):
        raise _wrong("dataProcessingJobType", "numbers of processed elements are not kept here")
    if document.get("shell", True) and document.get("arguments"):
        raise _wrong("arguments", "are for shell: false; Chronos itself leaves them out otherwise")
    run_as = document.get("runAsUser") or ""
    if run_as and run_as != unix_user:
        raise _wrong("runAsUser", f"your jobs run as {unix_user or 'nobody'}; leave it out, or log in as {run_as}")
    if document.get("uris") and document.get("fetch"):
        raise _wrong("fetch", "say either uris or fetch")


def _body(document: ChronosDocument) -> dict[str, Any]:
    """The job as our API takes it."""
    body: dict[str, Any] = {"name": document["name"][:128], "env": _environment(document)}
    body |= {
        "labels": _labels(document),
        **container_job_fields(document.get("container"), _wrong),
        **_command(document),
    }
    body["cpus"] = max(1, math.ceil(_number(document, "cpus")))
    body["memory"] = max(16, math.ceil(_number(document, "mem")))
    _number(
        document, "disk"
    )  # is kept and shown; disks are not divided among jobs, so there is nothing to set aside
    if gpus := _number(document, "gpus"):
        body["gpus"] = int(gpus) if gpus == int(gpus) else gpus
    if document.get("highPriority"):
        body["priority"] = _HIGH
    return body


def _command(document: ChronosDocument) -> dict[str, Any]:
    is_line, command = document.get("shell", True), document["command"]
    words = [command, *(document.get("arguments") or [])]
    fetches = document.get("fetch") or [{"uri": uri} for uri in document.get("uris") or []]
    if fetches:
        return {"script": build_fetch_script(fetches, command if is_line else words, _wrong)}
    return {"command": command if is_line else words}


def _environment(document: ChronosDocument) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in _list(document, "environmentVariables"):
        if not isinstance(one, dict) or not isinstance(one.get("name"), str) or one.keys() - {"name", "value"}:
            raise _wrong("environmentVariables", "each has a name and a value, and nothing else")
        value = one.get("value", "")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _wrong("environmentVariables", f"the value of {one['name'][:60]!a} must be text")
        found[one["name"]] = str(value)
    return found


def _labels(document: ChronosDocument) -> list[str]:
    labels = []
    for one in _list(document, "constraints"):
        if not isinstance(one, list) or len(one) != 3 or not all(isinstance(word, str) for word in one):
            raise _wrong("constraints", 'each is [attribute, "EQUALS", value]')
        name, operator, value = one
        if operator.upper() != "EQUALS":
            raise _wrong(
                "constraints", f"{operator[:20]} is not possible here: nodes are chosen by labels, with EQUALS"
            )
        if name == "hostname":
            raise _wrong(
                "constraints", "a job is not tied to one node here; give that node a label and ask for it"
            )
        labels.append(f"{name}={value}")
    return labels


def _timing(schedule: str, zone: str | None) -> str:
    """In Chronos the zone that is named takes the place of the one in the start."""
    if not schedule.strip().upper().startswith("R"):
        raise _wrong("schedule", "is a repeating interval: R/2026-07-22T12:00:00Z/PT24H")
    return re.sub(r"(Z|[+-]\d\d:?\d\d)/", "/", schedule, count=1, flags=re.IGNORECASE) if zone else schedule


def _epsilon(document: ChronosDocument) -> int:
    text = document.get("epsilon") or DOCUMENT_DEFAULTS["epsilon"]
    try:
        return max(1, int(parse_period(text).typical_seconds))
    except (ValueError, AttributeError, TypeError):
        raise _wrong("epsilon", "is a period: PT30M") from None


def _number(document: ChronosDocument, name: str) -> float:
    """Chronos takes numbers as text too."""
    try:
        value = float(str(document.get(name, DOCUMENT_DEFAULTS[name])))
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value <= _NUMBERS[name]:
        raise _wrong(name, f"must be a number from 0 to {_NUMBERS[name]:g}")
    return value


def _list(document: ChronosDocument, name: str) -> list[Any]:
    values = document.get(name) or []
    if not isinstance(values, list) or len(values) > 1000:
        raise _wrong(name, "must be a list")
    return values


def _wrong(field: str, why: str) -> Invalid:
    return Invalid(f"{field}: {why}.", "Change that field and send it again.", fields={field: why})


def build_fetch_script(fetches: object, command: str | Sequence[str], wrong: FieldErrorFactory) -> str:
    """A script that fetches them and then runs the line or the words."""
    if not isinstance(fetches, list) or len(fetches) > _MOST:
        raise wrong("fetch", f"must be a list of at most {_MOST}")
    lines = [line for one in fetches for line in _fetch_lines(one, wrong)]
    last = command if isinstance(command, str) else f"exec {shlex.join(command)}"
    return "\n".join(["#!/bin/sh", "set -e", *lines, "set +e", last, ""])


def _fetch_lines(one: object, wrong: FieldErrorFactory) -> list[str]:
    uri = one.get("uri") if isinstance(one, dict) else None
    if not isinstance(one, dict) or not isinstance(uri, str) or not uri.isprintable() or len(uri) > 4000:
        raise wrong("fetch", "each has a uri")
    for field, value in one.items():
        if field != "uri" and (field not in _SWITCHES or not isinstance(value, bool)):
            raise wrong(
                f"fetch.{str(field)[:40]}", f"is not possible here: {', '.join(_SWITCHES)} are true or false"
            )
    parts = _parts(uri, wrong)
    name = PurePosixPath(unquote(parts.path)).name
    if not name or name in (".", ".."):
        raise wrong("fetch", f"{uri[:60]!a} names no file")
    file = shlex.quote(f"./{name}")
    if parts.scheme in ("http", "https", "ftp"):
        lines = [f"curl -fsSL --retry 3 -o {file} -- {shlex.quote(uri)}"]
    elif parts.scheme in ("", "file") and parts.path.startswith("/") and not parts.netloc:
        lines = [f"cp -R -- {shlex.quote(unquote(parts.path))} {file}"]
    else:
        raise wrong("fetch", f"{uri[:60]!a}: only http, https, ftp and files of the node can be fetched here")
    if one.get("extract", True) and _TAR.fullmatch(name):
        lines.append(f"tar -xf {file}")
    elif one.get("extract", True) and name.lower().endswith(".zip"):
        lines.append(f"unzip -o -q {file}")
    return [*lines, f"chmod +x {file}"] if one.get("executable") else lines


def _parts(uri: str, wrong: FieldErrorFactory) -> SplitResult:
    try:
        return urlsplit(uri)
    except ValueError:
        raise wrong("fetch", f"{uri[:60]!a} is no address") from None


def container_job_fields(container: object, wrong: FieldErrorFactory) -> dict[str, Any]:
    """The fields of a job; none without a container."""
    if container is None:
        return {}
    if not isinstance(container, dict) or not isinstance(container.get("image"), str):
        raise wrong("container", "has a type and an image")
    for name in container:
        if name not in _CONTAINER_FIELDS:
            raise wrong(f"container.{str(name)[:40]}", "is not known here")
    for name in ("forcePullImage", "parameters", "networkName", "networkInfos"):
        if container.get(name):
            raise wrong(f"container.{name}", "is not possible here; leave it out" + _INSTEAD.get(name, ""))
    if str(container.get("type", "DOCKER")).upper() not in ("DOCKER", "MESOS"):
        raise wrong("container.type", "is DOCKER or MESOS")
    network = str(container.get("network", "HOST")).upper()
    if network not in _NETWORKS:
        raise wrong("container.network", "is HOST, BRIDGE or NONE")
    volumes = container.get("volumes") or []
    if not isinstance(volumes, list):
        raise wrong("container.volumes", "must be a list")
    mounts = [_mount(one, wrong) for one in volumes]
    return {"image": container["image"], "network": _NETWORKS[network], "mounts": mounts}


def _mount(volume: object, wrong: FieldErrorFactory) -> str:
    paths = [volume.get(name) for name in ("hostPath", "containerPath")] if isinstance(volume, dict) else []
    if not isinstance(volume, dict) or not all(isinstance(path, str) for path in paths):
        raise wrong(
            "container.volumes", "each has a hostPath and a containerPath: only folders of the node are there"
        )
    if unknown := sorted(str(name)[:40] for name in volume.keys() - {"hostPath", "containerPath", "mode"}):
        raise wrong(f"container.volumes.{unknown[0]}", "is not possible here: only folders of the node are there")
    mode = str(volume.get("mode", "RW")).upper()
    if mode not in ("RW", "RO"):
        raise wrong("container.volumes.mode", "is RW or RO")
    source, target = (str(path).rstrip("/") or "/" for path in paths)
    return f"{source}:{target}{':ro' if mode == 'RO' else ''}"
