"""Converts Chronos job documents to schedule requests, and schedules to Chronos documents. Pure functions.

Fields that are not supported are rejected with a reason, never ignored.
"""

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import RootModel

from heliostat.api.request_bodies import JsonObject
from heliostat.api.validation import read_job
from heliostat.errors import Invalid
from heliostat.models.schedules import CatchUpMode, OverlapPolicy, Schedule, ScheduleState
from heliostat.schedules.iso8601 import parse_period
from heliostat.services.schedules.schedule_requests import ScheduleRequest

ChronosDocument = dict[str, Any]


class ChronosBody(RootModel[JsonObject]):
    """A document in a request."""


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
_HIGH_PRIORITY = 100  # counts only within the project
_MAX_TEXT_LENGTH = 128 * 1024

_TAR = re.compile(r".*\.(tar|tgz|tar\.gz|tbz2|tar\.bz2|txz|tar\.xz)", re.IGNORECASE)
_MAX_FETCHES = 100
_FETCH_FLAGS = ("extract", "executable", "cache")  # `cache` has no effect: nothing is kept for other runs

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
_ALTERNATIVES = {
    "forcePullImage": ", and name the version in the image",
    "parameters": ", and use volumes and network",
}


def document_to_schedule_request(document: ChronosDocument, unix_user: str | None) -> ScheduleRequest:
    """Raises Invalid with the field and the reason."""
    _check_types(document)
    _check_possible(document, unix_user)
    schedule, parents = document.get("schedule"), document.get("parents")
    if (schedule is None) == (not parents):
        raise _invalid("schedule", "send either schedule or parents")
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


def schedule_to_document(schedule: Schedule, names: Mapping[int, str]) -> ChronosDocument:
    """The schedule as a Chronos document; `names` are those of its parents."""
    document: ChronosDocument = {
        **DOCUMENT_DEFAULTS,
        **(schedule.document or _derive_document(schedule)),
        "name": schedule.name,
    }
    document["disabled"] = schedule.state is ScheduleState.PAUSED
    document |= {
        "successCount": schedule.succeeded,
        "errorCount": schedule.failed,
        "errorsSinceLastSuccess": schedule.failed_in_a_row,
        "lastSuccess": format_chronos_time(schedule.succeeded_at),
        "lastError": format_chronos_time(schedule.failed_at),
    }
    if schedule.timing is None:
        document["parents"] = [names.get(parent, str(parent)) for parent in schedule.parents]
        return document
    document["schedule"] = schedule.timing
    document.setdefault("scheduleTimeZone", "" if schedule.zone == "UTC" else schedule.zone)
    return document


def format_chronos_time(at: datetime | None) -> str:
    """`2014-03-08T16:57:17.507Z`; empty: never."""
    return "" if at is None else f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


def _derive_document(schedule: Schedule) -> ChronosDocument:
    """The closest Chronos document for a schedule that was not created from one."""
    request = schedule.request
    command = request.spec.command
    is_line = command[:2] == ("/bin/sh", "-c")
    return {
        "command": command[2] if is_line else (command[0] if command else ""),
        "shell": is_line,
        "arguments": [] if is_line else list(command[1:]),
        "cpus": request.cpus or 1,
        "mem": request.memory_mib or DOCUMENT_DEFAULTS["mem"],
        "gpus": request.gpus,
        "retries": schedule.retries,
        "softError": schedule.soft_error,
        "concurrent": schedule.overlap is OverlapPolicy.ALLOW,
        "epsilon": f"PT{schedule.epsilon_seconds or 60}S",
        "environmentVariables": [{"name": name, "value": value} for name, value in request.spec.env.items()],
    }


def _check_types(document: ChronosDocument) -> None:
    for name, value in document.items():
        if name not in _KNOWN:
            raise _invalid(str(name)[:60], "is not a supported field of Chronos")
        if name in _TEXTS and not (isinstance(value, str) and len(value) <= _MAX_TEXT_LENGTH):
            raise _invalid(name, "must be text")
        if name in _TRUTHS and not isinstance(value, bool):
            raise _invalid(name, "must be true or false")
    for name in ("name", "command"):
        if not document.get(name):
            raise _invalid(name, "is missing")
    for name in ("parents", "arguments", "uris"):
        values = document.get(name) or []
        if not isinstance(values, list) or len(values) > 1000 or not all(isinstance(one, str) for one in values):
            raise _invalid(name, "must be a list of strings")


def _check_possible(document: ChronosDocument, unix_user: str | None) -> None:
    for name in ("executor", "executorFlags", "taskInfoData"):
        if document.get(name):
            raise _invalid(name, "Mesos executors are not supported; leave it empty")
    if document.get("async"):
        raise _invalid("async", "asynchronous jobs are not supported; set it to false")
    if document.get("dataProcessingJobType") or document.get("dataJob"):
        raise _invalid("dataProcessingJobType", "numbers of processed elements are not supported")
    if document.get("shell", True) and document.get("arguments"):
        raise _invalid("arguments", "need shell: false; Chronos ignores them otherwise")
    run_as = document.get("runAsUser") or ""
    if run_as and run_as != unix_user:
        own = f"your jobs run as {unix_user}" if unix_user else "your account has no Unix user"
        raise _invalid("runAsUser", f"{own}; omit it, or log in as {run_as}")
    if document.get("uris") and document.get("fetch"):
        raise _invalid("fetch", "send either uris or fetch")


def _body(document: ChronosDocument) -> dict[str, Any]:
    """The job in the form of the Heliostat API."""
    body: dict[str, Any] = {"name": document["name"][:128], "env": _environment(document)}
    body |= {
        "labels": _labels(document),
        **container_job_fields(document.get("container"), _invalid),
        **_command(document),
    }
    body["cpus"] = max(1, math.ceil(_number(document, "cpus")))
    body["memory"] = max(16, math.ceil(_number(document, "mem")))
    _number(document, "disk")  # only checked and stored: disks are not allocated to jobs
    if gpus := _number(document, "gpus"):
        body["gpus"] = int(gpus) if gpus == int(gpus) else gpus
    if document.get("highPriority"):
        body["priority"] = _HIGH_PRIORITY
    return body


def _command(document: ChronosDocument) -> dict[str, Any]:
    is_line, command = document.get("shell", True), document["command"]
    words = [command, *(document.get("arguments") or [])]
    fetches = document.get("fetch") or [{"uri": uri} for uri in document.get("uris") or []]
    if fetches:
        return {"script": build_fetch_script(fetches, command if is_line else words, _invalid)}
    return {"command": command if is_line else words}


def _environment(document: ChronosDocument) -> dict[str, str]:
    variables: dict[str, str] = {}
    for variable in _list(document, "environmentVariables"):
        if (
            not isinstance(variable, dict)
            or not isinstance(variable.get("name"), str)
            or variable.keys() - {"name", "value"}
        ):
            raise _invalid("environmentVariables", "each must have only a name and a value")
        value = variable.get("value", "")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _invalid("environmentVariables", f"the value of {variable['name'][:60]!a} must be text")
        variables[variable["name"]] = str(value)
    return variables


def _labels(document: ChronosDocument) -> list[str]:
    labels = []
    for constraint in _list(document, "constraints"):
        if (
            not isinstance(constraint, list)
            or len(constraint) != 3
            or not all(isinstance(word, str) for word in constraint)
        ):
            raise _invalid("constraints", 'each must be [attribute, "EQUALS", value]')
        name, operator, value = constraint
        if operator.upper() != "EQUALS":
            raise _invalid(
                "constraints", f"{operator[:20]} is not supported: nodes are selected by labels, with EQUALS"
            )
        if name == "hostname":
            raise _invalid(
                "constraints", "hostname is not supported; give the node a label and request that label"
            )
        labels.append(f"{name}={value}")
    return labels


def _timing(schedule: str, zone: str | None) -> str:
    """In Chronos, scheduleTimeZone replaces the zone of the start time."""
    if not schedule.strip().upper().startswith("R"):
        raise _invalid("schedule", "must be a repeating interval: R/2026-07-22T12:00:00Z/PT24H")
    return re.sub(r"(Z|[+-]\d\d:?\d\d)/", "/", schedule, count=1, flags=re.IGNORECASE) if zone else schedule


def _epsilon(document: ChronosDocument) -> int:
    text = document.get("epsilon") or DOCUMENT_DEFAULTS["epsilon"]
    try:
        return max(1, int(parse_period(text).typical_seconds))
    except (ValueError, AttributeError, TypeError):
        raise _invalid("epsilon", "must be a period: PT30M") from None


def _number(document: ChronosDocument, name: str) -> float:
    """Chronos also accepts numbers as text."""
    try:
        value = float(str(document.get(name, DOCUMENT_DEFAULTS[name])))
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value <= _NUMBERS[name]:
        raise _invalid(name, f"must be a number from 0 to {_NUMBERS[name]:g}")
    return value


def _list(document: ChronosDocument, name: str) -> list[Any]:
    values = document.get(name) or []
    if not isinstance(values, list) or len(values) > 1000:
        raise _invalid(name, "must be a list")
    return values


def _invalid(field: str, problem: str) -> Invalid:
    return Invalid(f"{field}: {problem}.", "Change that field and send it again.", fields={field: problem})


def build_fetch_script(fetches: object, command: str | Sequence[str], field_error: FieldErrorFactory) -> str:
    """A script that fetches the files and then runs the command."""
    if not isinstance(fetches, list) or len(fetches) > _MAX_FETCHES:
        raise field_error("fetch", f"must be a list of at most {_MAX_FETCHES} items")
    lines = [line for fetch in fetches for line in _fetch_lines(fetch, field_error)]
    last = command if isinstance(command, str) else f"exec {shlex.join(command)}"
    return "\n".join(["#!/bin/sh", "set -e", *lines, "set +e", last, ""])


def _fetch_lines(fetch: object, field_error: FieldErrorFactory) -> list[str]:
    uri = fetch.get("uri") if isinstance(fetch, dict) else None
    if not isinstance(fetch, dict) or not isinstance(uri, str) or not uri.isprintable() or len(uri) > 4000:
        raise field_error("fetch", "each must have a uri")
    for field, value in fetch.items():
        if field != "uri" and (field not in _FETCH_FLAGS or not isinstance(value, bool)):
            raise field_error(
                f"fetch.{str(field)[:40]}",
                f"is not supported: only {', '.join(_FETCH_FLAGS)}, which must be true or false",
            )
    parts = _parts(uri, field_error)
    name = PurePosixPath(unquote(parts.path)).name
    if not name or name in (".", ".."):
        raise field_error("fetch", f"{uri[:60]!a} does not name a file")
    file = shlex.quote(f"./{name}")
    if parts.scheme in ("http", "https", "ftp"):
        lines = [f"curl -fsSL --retry 3 -o {file} -- {shlex.quote(uri)}"]
    elif parts.scheme in ("", "file") and parts.path.startswith("/") and not parts.netloc:
        lines = [f"cp -R -- {shlex.quote(unquote(parts.path))} {file}"]
    else:
        raise field_error("fetch", f"{uri[:60]!a}: only http, https, ftp and files of the node are supported")
    if fetch.get("extract", True) and _TAR.fullmatch(name):
        lines.append(f"tar -xf {file}")
    elif fetch.get("extract", True) and name.lower().endswith(".zip"):
        lines.append(f"unzip -o -q {file}")
    return [*lines, f"chmod +x {file}"] if fetch.get("executable") else lines


def _parts(uri: str, field_error: FieldErrorFactory) -> SplitResult:
    try:
        return urlsplit(uri)
    except ValueError:
        raise field_error("fetch", f"{uri[:60]!a} is not a valid address") from None


def container_job_fields(container: object, field_error: FieldErrorFactory) -> dict[str, Any]:
    """The fields of a job for a Chronos container; empty without a container."""
    if container is None:
        return {}
    if not isinstance(container, dict) or not isinstance(container.get("image"), str):
        raise field_error("container", "must have a type and an image")
    for name in container:
        if name not in _CONTAINER_FIELDS:
            raise field_error(f"container.{str(name)[:40]}", "is not supported")
    for name in ("forcePullImage", "parameters", "networkName", "networkInfos"):
        if container.get(name):
            raise field_error(f"container.{name}", "is not supported; omit it" + _ALTERNATIVES.get(name, ""))
    if str(container.get("type", "DOCKER")).upper() not in ("DOCKER", "MESOS"):
        raise field_error("container.type", "must be DOCKER or MESOS")
    network = str(container.get("network", "HOST")).upper()
    if network not in _NETWORKS:
        raise field_error("container.network", "must be HOST, BRIDGE or NONE")
    volumes = container.get("volumes") or []
    if not isinstance(volumes, list):
        raise field_error("container.volumes", "must be a list")
    mounts = [_mount(one, field_error) for one in volumes]
    return {"image": container["image"], "network": _NETWORKS[network], "mounts": mounts}


def _mount(volume: object, field_error: FieldErrorFactory) -> str:
    paths = [volume.get(name) for name in ("hostPath", "containerPath")] if isinstance(volume, dict) else []
    if not isinstance(volume, dict) or not all(isinstance(path, str) for path in paths):
        raise field_error(
            "container.volumes", "each must have a hostPath and a containerPath: only folders of the node"
        )
    if unknown := sorted(str(name)[:40] for name in volume.keys() - {"hostPath", "containerPath", "mode"}):
        raise field_error(f"container.volumes.{unknown[0]}", "is not supported: only folders of the node")
    mode = str(volume.get("mode", "RW")).upper()
    if mode not in ("RW", "RO"):
        raise field_error("container.volumes.mode", "must be RW or RO")
    source, target = (str(path).rstrip("/") or "/" for path in paths)
    return f"{source}:{target}{':ro' if mode == 'RO' else ''}"
