"""Looks from the nodes: a tiny job on one node of each partition says whether it sees what this machine sees.

Only when asked (`helio doctor --probe`): it takes seconds, and a place in Slurm's queue. What it found is kept.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

from heliostat.config import Settings
from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.errors import Conflict, EngineUnavailable

_MOST_PARTITIONS = 16
_MOST_USERS = 200
_AT_THE_SAME_TIME = 4
FindingTuple = tuple[str, str, str, str | None]  # check, level, message, hint
_IMMEDIATE_SECONDS = 10  # that the probe waits for room on a node
_MOST_NAMED = 5
_SKEW_SECONDS = 5.0
WRITE_TEST_FOLDER = "tray"  # the folder in which everybody may write
_SCRIPT = """\
PATH=/usr/local/bin:/usr/bin:/bin
echo "node $SLURMD_NODENAME"
echo "clock $(date +%s.%N)"
[ -r "$1/word" ] && read -r word <"$1/word" && echo "word $word"
[ -w "$1/tray" ] && echo "writable yes"
shift
for name do echo "user $name $(id -u "$name" 2>/dev/null) $(id -g "$name" 2>/dev/null)"; done
"""
_USER = re.compile(r"user (\S+)(?: (\d+) (\d+))?\s*")


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What a node is to see as we see it."""

    folder: str  # holds a file `word`, and a folder `tray` that everybody may write to
    marker: str
    users: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # uid and gid of each


@dataclass(frozen=True, slots=True)
class ProbeResult:
    node: str
    clock_seconds: float | None
    marker: str | None  # None: it does not see the file
    can_write: bool
    users: Mapping[str, tuple[int, int] | None]  # None: not known there


def probe_partitions(
    settings: Settings, users: Mapping[str, tuple[int, int]], client: SlurmClient | None = None
) -> list[FindingTuple]:
    """Ask a node of each partition, and keep what was found. `users`: uid and gid of each, as here.

    Raises EngineUnavailable while Slurm does not answer at all, and Conflict while another asks.
    """
    client = client or SlurmClient.for_home(settings.home)
    with _one_at_a_time(settings), _marker(settings.home.path) as (folder, word):
        partitions = [name for name, one in sorted(client.partitions().items()) if one.accepts_jobs and one.nodes]
        question = ProbeRequest(folder, word, dict(islice(users.items(), _MOST_USERS)))
        ask = partial(_ask, client, settings, question)
        with ThreadPoolExecutor(_AT_THE_SAME_TIME) as pool:
            found = [one for answer in pool.map(ask, partitions[:_MOST_PARTITIONS]) for one in answer]
        _keep(settings, found)
    return found


def last_probe_findings(settings: Settings) -> Iterator[FindingTuple]:
    """What the last one found, with its age; how to make one, if there was none."""
    try:
        kept = json.loads(_kept_path(settings).read_text(encoding="utf-8"))
        hours, found = (time.time() - kept["at"]) / 3600, [tuple(one) for one in kept["found"]]
    except (OSError, ValueError, KeyError, TypeError):
        shared = f"Whether the nodes see {settings.home.jobs} and know the same users has not been tried."
        yield "slurm", "warning", shared, "helio doctor --probe"
        return
    age = "" if hours < 1 else f" ({hours:.0f} h ago)" if hours < 48 else f" ({hours / 24:.0f} days ago)"
    for check, level, message, hint in found:
        again = "" if level == "ok" else " Then: helio doctor --probe"
        yield check, level, f"{message}{age}", None if hint is None else hint.rstrip(".") + "." + again


def _ask(client: SlurmClient, settings: Settings, question: ProbeRequest, partition: str) -> list[FindingTuple]:
    before = time.time()
    try:
        said = client.run_command(probe_srun_argv(partition, question))
    except SlurmRefused as error:
        return [probe_failed_finding(partition, str(error))]
    except EngineUnavailable as error:
        return [probe_failed_finding(partition, error.message)]
    return evaluate_probe(
        partition, str(settings.home.path), question, parse_probe_output(said), (before, time.time())
    )


@contextlib.contextmanager
def _one_at_a_time(settings: Settings) -> Iterator[None]:
    with open(settings.home.attempts / "probing.lock", "a", encoding="utf-8") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict("The nodes are being probed already.", "In some seconds: helio doctor") from None
        yield


@contextlib.contextmanager
def _marker(home: Path) -> Iterator[tuple[str, str]]:
    """A word that all may read and nobody change, beside a folder that all may write to, as root of a node may be
    nobody here. What somebody puts there is theirs, nobody else sees it, and it goes with the folder."""
    folder, word = Path(tempfile.mkdtemp(prefix="probe-", dir=home)), secrets.token_hex(16)
    tray, marker = folder / WRITE_TEST_FOLDER, folder / "word"
    try:
        marker.write_text(f"{word}\n", encoding="utf-8")
        marker.chmod(0o644)
        tray.mkdir()
        tray.chmod(0o1733)
        folder.chmod(0o711)
        yield str(folder), word
    finally:
        folder.chmod(0o700)
        # `rm` goes through folders in folders without end; a function of Python's that calls itself does not.
        subprocess.run(["rm", "-rf", "--one-file-system", "--", str(folder)], capture_output=True, check=False)


def _keep(settings: Settings, found: list[FindingTuple]) -> None:
    path = _kept_path(settings)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".probe-", delete=False) as file:
        json.dump({"at": time.time(), "found": found}, file)
    os.replace(file.name, path)


def _kept_path(settings: Settings) -> Path:
    return settings.home.attempts / "probed.json"


def probe_srun_argv(partition: str, question: ProbeRequest) -> list[str]:
    """A tiny job on any node of the partition, or none at all if that has no room within some seconds."""
    return [
        "srun",
        f"--partition={partition}",
        "--job-name=heliostat-doctor",
        f"--immediate={_IMMEDIATE_SECONDS}",
        "--nodes=1",
        "--ntasks=1",
        "--mem=1M",
        "--time=1",
        "--input=none",
        "--chdir=/",
        "--export=NONE",
        "/bin/sh",
        "-c",
        _SCRIPT,
        "probe",
        question.folder,
        *question.users,
    ]


def parse_probe_output(said: str) -> ProbeResult:
    """Nothing but our own script has written it, so each line is once there or not at all."""
    lines = said.splitlines()
    facts = dict(line.partition(" ")[::2] for line in lines if not line.startswith("user "))
    users = {found[1]: found for line in lines if (found := _USER.fullmatch(line))}
    return ProbeResult(
        facts.get("node") or "a node",
        float(facts["clock"]) if re.fullmatch(r"\d+\.\d+", facts.get("clock", "")) else None,
        facts.get("word"),
        "writable" in facts,
        {name: (int(found[2]), int(found[3])) if found[2] else None for name, found in users.items()},
    )


def evaluate_probe(
    partition: str, home: str, question: ProbeRequest, answer: ProbeResult, asked: tuple[float, float]
) -> list[FindingTuple]:
    """All findings about one node. `asked`: our clock before the question and after the answer."""
    found = [*_folder(answer, home, question), *_users(answer, question), *_clock(answer, asked)]
    if found:
        return found
    people = f", knows {len(question.users)} users as we do" if question.users else ""
    message = f"{answer.node} of partition {partition} sees {home}{people}, and its clock is right."
    return [("slurm", "ok", message, None)]


def _folder(answer: ProbeResult, home: str, question: ProbeRequest) -> Iterator[FindingTuple]:
    if answer.marker != question.marker:
        hint = (
            f"Put the data directory on a file system that all nodes mount at {home}; or HELIOSTAT_HOME elsewhere."
        )
        yield (
            "slurm",
            "problem",
            f"{answer.node} does not see {home}: jobs there have no folder and no output.",
            hint,
        )
    elif not answer.can_write:
        hint = f"Mount it writable there: `findmnt -T {home}` on the node says how it is now."
        yield "slurm", "problem", f"{answer.node} sees {home}, but cannot write there.", hint


def _users(answer: ProbeResult, question: ProbeRequest) -> Iterator[FindingTuple]:
    unknown = [name for name in question.users if answer.users.get(name) is None]
    if unknown:
        hint = "Let the node have the same users as this machine: LDAP, sssd, or a copy of passwd and group."
        yield (
            "slurm",
            "problem",
            f"{answer.node} does not know {_some(unknown)}: their jobs cannot run there.",
            hint,
        )
    for name, ours in question.users.items():
        theirs = answer.users.get(name)
        if theirs is not None and theirs != ours:
            message = f"{name} is {ours[0]}:{ours[1]} here, but {theirs[0]}:{theirs[1]} on {answer.node}."
            hint = (
                "uid and gid must be the same on all nodes, or people get at each other's files: mend it at once."
            )
            yield "slurm", "problem", message, hint
            return


def _clock(answer: ProbeResult, asked: tuple[float, float]) -> Iterator[FindingTuple]:
    if answer.clock_seconds is None:
        return
    before, after = asked
    off = max(before - answer.clock_seconds, answer.clock_seconds - after, 0.0)
    if off > _SKEW_SECONDS:
        hint = "Let NTP (chrony) set it: times of jobs go wrong, and munge refuses what is minutes away."
        yield "slurm", "warning", f"The clock of {answer.node} is {off:.0f} s off.", hint


def probe_failed_finding(partition: str, why: str) -> FindingTuple:
    """Of a partition from which no answer came."""
    busy = any(words in why.lower() for words in ("busy", "immediate", "not available", "allocate resources"))
    if busy:
        hint = "Try again when there is room: helio doctor --probe"
        return "slurm", "warning", f"No node of partition {partition} had room for a probe.", hint
    hint = (
        f"Try by hand: srun --partition={partition} hostname. Nodes must reach this machine's ports "
        "(SrunPortRange), and root must be allowed to run jobs (DisableRootJobs=NO)."
    )
    return "slurm", "warning", f"Partition {partition} could not be probed: {why}", hint


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
