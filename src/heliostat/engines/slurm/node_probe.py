"""Node probe (`helio doctor --probe`): a small job on one node of each partition checks the shared folder, user
ids and clock.

Only on request: it takes seconds and resources in Slurm. The findings are stored.
"""

import contextlib
import fcntl
import json
import os
import re
import secrets
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
from heliostat.untrusted_folders import remove_folder

PROBE_NAME = "heliostat-doctor"
_MAX_PARTITIONS = 16
_MAX_USERS = 200
_PARALLEL_PROBES = 4
FindingTuple = tuple[str, str, str, str | None]  # check, level, message, hint
_IMMEDIATE_SECONDS = 10  # maximum wait for free resources
_MAX_LISTED_NAMES = 5
_MAX_CLOCK_SKEW_SECONDS = 5.0
WRITE_TEST_FOLDER = "tray"  # writable for all users
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
    """Values that a node should see as this host does."""

    folder: str  # contains a file `word`, and a folder `tray` that all users can write to
    marker: str  # content of `word`
    users: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # uid and gid of each


@dataclass(frozen=True, slots=True)
class ProbeResult:
    node: str
    clock_seconds: float | None
    marker: str | None  # None: it cannot read the file
    can_write: bool
    users: Mapping[str, tuple[int, int] | None]  # uid and gid; None: the user does not exist there


def probe_partitions(
    settings: Settings, users: Mapping[str, tuple[int, int]], client: SlurmClient | None = None
) -> list[FindingTuple]:
    """Probes a node of each partition and stores the findings. `users`: uid and gid on this host.

    Raises EngineUnavailable if Slurm does not respond, and Conflict if another probe is running.
    """
    client = client or SlurmClient.for_home(settings.home)
    with _probe_lock(settings), _marker(settings.home.path) as (folder, word):
        existing = sorted(client.partitions().items())
        names = [name for name, partition in existing if partition.accepts_jobs and partition.nodes]
        request = ProbeRequest(folder, word, dict(islice(users.items(), _MAX_USERS)))
        probe = partial(_probe, client, settings, request)
        with ThreadPoolExecutor(_PARALLEL_PROBES) as pool:
            findings = [finding for result in pool.map(probe, names[:_MAX_PARTITIONS]) for finding in result]
        _save(settings, findings)
    return findings


def last_probe_findings(settings: Settings) -> Iterator[FindingTuple]:
    """Findings of the last probe, with its age; a warning if there was none."""
    try:
        stored = json.loads(_findings_path(settings).read_text(encoding="utf-8"))
        hours, findings = (time.time() - stored["at"]) / 3600, [tuple(finding) for finding in stored["found"]]
    except (OSError, ValueError, KeyError, TypeError):
        message = f"Not checked: whether the nodes have {settings.home.jobs} and the same users as this host."
        yield "slurm", "warning", message, "helio doctor --probe"
        return
    age = "" if hours < 1 else f" ({hours:.0f} h ago)" if hours < 48 else f" ({hours / 24:.0f} days ago)"
    for check, level, message, hint in findings:
        again = "" if level == "ok" else " Then: helio doctor --probe"
        yield check, level, f"{message}{age}", None if hint is None else hint.rstrip(".") + "." + again


def _probe(client: SlurmClient, settings: Settings, request: ProbeRequest, partition: str) -> list[FindingTuple]:
    before = time.time()
    try:
        output = client.run_command(probe_srun_argv(partition, request))
    except SlurmRefused as error:
        return [probe_failed_finding(partition, str(error))]
    except EngineUnavailable as error:
        return [probe_failed_finding(partition, error.message)]
    return evaluate_probe(
        partition, str(settings.home.path), request, parse_probe_output(output), (before, time.time())
    )


@contextlib.contextmanager
def _probe_lock(settings: Settings) -> Iterator[None]:
    with open(settings.home.attempts / "probing.lock", "a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict("Another probe is running.", "Wait some seconds, then run: helio doctor") from None
        yield


@contextlib.contextmanager
def _marker(home: Path) -> Iterator[tuple[str, str]]:
    """A file that all users can read but not change, and a folder that all can write to: root of a node may be an
    unprivileged user on the shared file system. Files in it are private and deleted with the folder."""
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
        with contextlib.suppress(OSError):
            remove_folder(str(folder))


def _save(settings: Settings, findings: list[FindingTuple]) -> None:
    path = _findings_path(settings)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".probe-", delete=False) as file:
        json.dump({"at": time.time(), "found": findings}, file)
    os.replace(file.name, path)


def _findings_path(settings: Settings) -> Path:
    return settings.home.attempts / "probed.json"


def probe_srun_argv(partition: str, request: ProbeRequest) -> list[str]:
    """A small job on any node of the partition; fails if no node has free resources within some seconds."""
    return [
        "srun",
        f"--partition={partition}",
        f"--job-name={PROBE_NAME}",
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
        request.folder,
        *request.users,
    ]


def parse_probe_output(output: str) -> ProbeResult:
    """Only the probe's script writes this output, so each line exists at most once."""
    lines = output.splitlines()
    facts = dict(line.partition(" ")[::2] for line in lines if not line.startswith("user "))
    users = {match[1]: match for line in lines if (match := _USER.fullmatch(line))}
    return ProbeResult(
        facts.get("node") or "a node",
        float(facts["clock"]) if re.fullmatch(r"\d+\.\d+", facts.get("clock", "")) else None,
        facts.get("word"),
        "writable" in facts,
        {name: (int(match[2]), int(match[3])) if match[2] else None for name, match in users.items()},
    )


def evaluate_probe(
    partition: str, home: str, request: ProbeRequest, result: ProbeResult, interval: tuple[float, float]
) -> list[FindingTuple]:
    """All findings about one node. `interval`: this host's clock before and after the probe."""
    problems = [*_folder(result, home, request), *_users(result, request), *_clock(result, interval)]
    if problems:
        return problems
    users = f", has the same ids for {len(request.users)} users" if request.users else ""
    message = f"{result.node} of partition {partition} can use {home}{users}, and its clock is right."
    return [("slurm", "ok", message, None)]


def _folder(result: ProbeResult, home: str, request: ProbeRequest) -> Iterator[FindingTuple]:
    if result.marker != request.marker:
        hint = (
            f"Move the data directory to a file system that all nodes mount at {home}, or change HELIOSTAT_HOME."
        )
        message = f"{result.node} cannot read {home}: jobs there have no folder and no output."
        yield "slurm", "problem", message, hint
    elif not result.can_write:
        hint = f"Mount it writable; check with `findmnt -T {home}` on the node."
        yield "slurm", "problem", f"{result.node} can read {home}, but cannot write there.", hint


def _users(result: ProbeResult, request: ProbeRequest) -> Iterator[FindingTuple]:
    missing = [name for name in request.users if result.users.get(name) is None]
    if missing:
        hint = "Give the node the same users as this host: LDAP, sssd, or a copy of passwd and group."
        message = (
            f"{result.node} does not have these users, whose jobs cannot run there: {_format_names(missing)}."
        )
        yield "slurm", "problem", message, hint
    for name, ours in request.users.items():
        theirs = result.users.get(name)
        if theirs is not None and theirs != ours:
            message = f"{name} is {ours[0]}:{ours[1]} here, but {theirs[0]}:{theirs[1]} on {result.node}."
            hint = "Make uid and gid the same on all nodes at once: otherwise users can access each other's files."
            yield "slurm", "problem", message, hint
            return


def _clock(result: ProbeResult, interval: tuple[float, float]) -> Iterator[FindingTuple]:
    if result.clock_seconds is None:
        return
    before, after = interval
    skew = max(before - result.clock_seconds, result.clock_seconds - after, 0.0)
    if skew > _MAX_CLOCK_SKEW_SECONDS:
        hint = "Set it with NTP (chrony): otherwise times of jobs are wrong, and munge rejects requests."
        yield "slurm", "warning", f"The clock of {result.node} is {skew:.0f} s off.", hint


def probe_failed_finding(partition: str, error: str) -> FindingTuple:
    """For a partition whose probe did not run."""
    is_busy = any(
        phrase in error.lower() for phrase in ("busy", "immediate", "not available", "allocate resources")
    )
    if is_busy:
        hint = "Try again when a node has free resources: helio doctor --probe"
        return "slurm", "warning", f"No node of partition {partition} had free resources for a probe.", hint
    hint = (
        f"Try by hand: srun --partition={partition} hostname. Nodes must reach this host's ports "
        "(SrunPortRange), and root must be allowed to run jobs (DisableRootJobs=NO)."
    )
    return "slurm", "warning", f"The probe of partition {partition} failed: {error}", hint


def _format_names(names: Sequence[str]) -> str:
    more = len(names) - _MAX_LISTED_NAMES
    return ", ".join(names[:_MAX_LISTED_NAMES]) + (f" and {more} more" if more > 0 else "")
