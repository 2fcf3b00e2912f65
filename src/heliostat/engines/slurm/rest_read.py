"""What slurmrestd answers (OpenAPI v0.0.38), as the records that its tools' lines become: pure.

A text of a user's is one value here, and cannot pose as another field. What cannot be read is left out.
"""

import pwd
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from heliostat.engines.slurm.numbers import ElementNumber
from heliostat.engines.slurm.parse import (
    OVER,
    WAITING,
    SlurmJob,
    SlurmNode,
    Standing,
    expand_hosts,
    gpus_of,
    time_of,
)
from heliostat.engines.slurm.partitions import Partition
from heliostat.engines.slurm.reservations import SlurmReservation
from heliostat.models import Reading

Entry = Mapping[str, Any]
LARGEST_INDEX = 1000  # of an array, as Slurm's MaxArraySize has it unless set; slurmrestd does not say
_INDEXES = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?(?::(\d{1,9}))?", re.ASCII)
_DEVICES = re.compile(r"gpu[^(,]*\(IDX:([\d,-]+)\)", re.ASCII)
_CLOSED = ("INACTIVE", "DRAIN")
_BUSY = ("allocated", "mixed")


def jobs_in(answer: Entry, now: datetime) -> dict[int, SlurmJob]:
    """Every job; of an array that waits, every element."""
    entries = list(_entries(answer, "jobs"))
    own = {number for entry in entries if (number := _own_number(entry)) is not None}
    found: dict[int, SlurmJob] = {}
    for entry in entries:
        number = _own_number(entry)
        numbers = [number] if number is not None else [one for one in _waiting_elements(entry) if one not in own]
        found |= {one: job for one in numbers if (job := _job(entry, one, now))}
    return found


def texts_in(answer: Entry, key: str, uid: int | None = None) -> dict[int, str]:
    """A field of every job (of this user): any text."""
    found: dict[int, str] = {}
    for entry in _entries(answer, "jobs"):
        if uid is not None and entry.get("user_id") != uid:
            continue
        number = _own_number(entry)
        numbers: Iterable[int] = _waiting_elements(entry) if number is None else [number]
        found |= dict.fromkeys(numbers, _text(entry, key))
    return found


def past_jobs_in(answer: Entry) -> dict[int, SlurmJob]:
    """Of the accounting. An exit code above 0 is not in its answer: 1 stands for all of them."""
    found = (_past_job(entry) for entry in _entries(answer, "jobs"))
    return {job.number: job for job in found if job is not None}


def devices_in(answer: Entry, nodes: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Which GPUs the one job of the answer has on each of these nodes."""
    found: dict[str, tuple[int, ...]] = {}
    for entry in _entries(answer, "jobs"):
        resources = entry.get("job_resources") or {}
        hosts = expand_hosts(_text(resources, "nodes")) if isinstance(resources, dict) else ()
        for host, said in zip(hosts, entry.get("gres_detail") or (), strict=False):
            indexes = [index for part in _DEVICES.findall(str(said)) for index in expand_hosts(f"[{part}]")]
            if host in nodes:
                found[host] = tuple(int(index) for index in indexes if index.isdecimal())
    return found


def nodes_in(answer: Entry) -> list[SlurmNode]:
    return [
        SlurmNode(
            _text(entry, "name"),
            _node_state(entry),
            _number(entry, "cpus"),
            _number(entry, "real_memory"),
            tuple(gpus_of(_text(entry, "gres"))),
            tuple(word for word in _text(entry, "features").split(",") if word),
            _text(entry, "reason") or None,
        )
        for entry in _entries(answer, "nodes")
        if _text(entry, "name")
    ]


def loads_in(answer: Entry) -> dict[str, Reading]:
    """How busy each node is; of one that does not answer, nothing is known."""
    return {_text(entry, "name"): _load(entry) for entry in _entries(answer, "nodes")}


def partitions_in(answer: Entry) -> dict[str, Partition]:
    return {
        name: Partition(
            name=name,
            nodes=frozenset(expand_hosts(_text(entry, "nodes"))),
            is_default="default" in (entry.get("flags") or ()),
            is_open=_text(entry, "state") not in _CLOSED,
            max_seconds=_limit(entry, "max_time_limit", 60),
            max_nodes=_limit(entry, "maximum_nodes_per_job"),
        )
        for entry in _entries(answer, "partitions")
        if (name := _text(entry, "name"))
    }


def reservations_in(answer: Entry) -> list[SlurmReservation]:
    found = []
    for entry in _entries(answer, "reservations"):
        name, starts_at, ends_at = _text(entry, "name"), _time(entry, "start_time"), _time(entry, "end_time")
        if name and starts_at and ends_at:
            people, accounts = (tuple(_text(entry, key).split(",")) for key in ("users", "accounts"))
            nodes = expand_hosts(_text(entry, "node_list"))
            found.append(SlurmReservation(name, nodes, starts_at, ends_at, people, accounts))
    return found


def elements_in(text: str) -> Iterator[int]:
    """The indexes of `1-3,5,8-20:2%4`.

    slurmrestd cuts a long list (`1-3,5,8-2...%4`), unless SLURM_BITSTR_LEN=0 is in its environment. What is cut
    off may be anything from there on: rather too many that still wait than one that is taken for gone.
    """
    listed, cut, _ = text.partition("%")[0].partition("...")
    parts = listed.split(",")[: -1 if cut else None]
    last = -1
    for part in parts:
        if found := _INDEXES.fullmatch(part):
            first, end, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
            last = min(end, first + 10**6)
            yield from range(first, last + 1, max(1, step))
    if cut:
        yield from range(last + 1, LARGEST_INDEX + 1)


def _own_number(entry: Entry) -> int | None:
    """None: it stands for elements of an array that wait."""
    array, index = entry.get("array_job_id") or 0, entry.get("array_task_id")
    if _text(entry, "array_task_string"):
        return None
    return ElementNumber.of(array, index) if array and index is not None else _number(entry, "job_id")


def _waiting_elements(entry: Entry) -> list[int]:
    array = _number(entry, "array_job_id")
    return [ElementNumber.of(array, index) for index in elements_in(_text(entry, "array_task_string"))]


def _job(entry: Entry, number: int, now: datetime) -> SlurmJob | None:
    state, status = _text(entry, "job_state"), _number(entry, "exit_code")
    if not state or not isinstance(entry.get("user_id"), int):
        return None
    limit = _limit(entry, "time_limit", 60)
    has_end = state in OVER or limit is not None
    standing = Standing(
        _number(entry, "restart_cnt"),
        _clock(_seconds_used(entry, now)),
        "UNLIMITED" if limit is None else _clock(limit),
        _number(entry, "priority"),
        _text(entry, "partition"),
        str(_number(entry, "submit_time")),
        _text(entry, "tres_alloc_str") or _text(entry, "tres_req_str"),
    )
    return SlurmJob(
        number=number,
        state=state,
        uid=entry["user_id"],
        exit_code=status >> 8,
        signal=status & 0x7F,
        started_at=_time(entry, "start_time"),
        ended_at=_time(entry, "end_time") if has_end else None,
        nodes=expand_hosts(_text(entry, "nodes")),
        reason=_text(entry, "state_reason"),
        standing=standing,
    )


def _past_job(entry: Entry) -> SlurmJob | None:
    array, times, state = (entry.get(key) or {} for key in ("array", "time", "state"))
    uid, said = _uid(_text(entry, "user")), _text(state, "current")
    if uid is None or not said:
        return None
    index, ended = array.get("task_id"), entry.get("exit_code") or {}
    number = _number(entry, "job_id")
    signal = _number(ended.get("signal") or {}, "signal_id")
    code = _number(ended, "return_code")
    return SlurmJob(
        number=ElementNumber.of(array["job_id"], index) if array.get("job_id") and index is not None else number,
        state=said,
        uid=uid,
        exit_code=1 if said == "FAILED" and not code and not signal else code,
        signal=signal,
        started_at=_time(times, "start"),
        ended_at=_time(times, "end"),
        nodes=expand_hosts("" if _text(entry, "nodes") == "None assigned" else _text(entry, "nodes")),
        reason=_text(state, "reason"),
    )


def _uid(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid if name else None
    except KeyError:
        return None


def _seconds_used(entry: Entry, now: datetime) -> int:
    """As squeue counts: without the time in which it was suspended."""
    start, suspended, before = (_number(entry, key) for key in ("start_time", "suspend_time", "pre_sus_time"))
    state = _text(entry, "job_state")
    if not start or state in WAITING:
        return 0
    if state == "SUSPENDED":
        return before
    moment = _number(entry, "end_time") if state in OVER else int(now.timestamp())
    return max(0, before + moment - suspended if suspended else moment - start)


def _clock(seconds: int) -> str:
    """As `parse.seconds_of` reads it."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02}:{minute:02}:{second:02}"


def _node_state(entry: Entry) -> str:
    """As sinfo writes it: `idle`, `drained`, `down*` (does not answer)."""
    state, flags = _text(entry, "state").lower(), {str(flag).lower() for flag in entry.get("state_flags") or ()}
    if "drain" in flags and not flags & {"maintenance"}:
        state = "draining" if state in _BUSY or "completing" in flags else "drained"
    for flag, word in _FLAGS.items():
        state = word if flag in flags else state
    return state + "*" if "not_responding" in flags else state


_FLAGS = {"maintenance": "maint", "power_down": "power_down", "powered_down": "powered_down", "fail": "fail"}


def _load(entry: Entry) -> Reading:
    load, free = _limit(entry, "cpu_load"), _limit(entry, "free_memory")
    cpus, memory = _number(entry, "cpus"), _number(entry, "real_memory")
    busy = None if load is None or "*" in _node_state(entry) else min(load / 100, float(cpus))
    return Reading(busy, None if free is None else max(0.0, float(memory - free)))


def _entries(answer: Entry, key: str) -> Iterator[Entry]:
    found = answer.get(key)
    return (one for one in (found if isinstance(found, list) else []) if isinstance(one, dict))


def _text(entry: Entry, key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""


def _number(entry: Entry, key: str) -> int:
    value = entry.get(key)
    return value if isinstance(value, int) else 0


def _limit(entry: Entry, key: str, factor: int = 1) -> int | None:
    """None: none, or not known; -1 and numbers near the largest mean so too."""
    value = entry.get(key)
    return value * factor if isinstance(value, int) and 0 <= value < 2**31 else None


def _time(entry: Entry, key: str) -> datetime | None:
    return time_of(str(_number(entry, key)))
