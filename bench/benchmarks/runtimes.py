"""What a start costs in each runtime, next to calling its tool by hand in the same run, turn by turn.

The job tells the time, and no more. Its start-up is the time from the call of the engine to the one it tells; the
whole is that until the word that it has ended, which is given when nothing of it is left. By hand, the tool is
called as somebody would who needs the same: one command, the same folders, limits and language, its image there.
Bubblewrap knows no limits, so by hand it runs in a group of processes made for it; podman is told them. What
a runtime adds is its time less the one of a plain process in the same round; by hand, less the one of the program
alone.

Before each start is a pause, as the kernel takes a room down some time after its last process; and then a move
from a group to itself: the first one after a pause takes the kernel long, and the server has it behind it when it
starts a job.
"""

from __future__ import annotations

import getpass
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from operator import attrgetter
from pathlib import Path
from queue import Queue
from statistics import median

from bench.measurements import OUR_SYSTEM, Measurement
from bench.settings import Settings
from heliostat.config import Home, ServerSettings
from heliostat.config import Settings as HeliostatSettings
from heliostat.engines.local.cgroups import CgroupLimits, CgroupsUnavailable, CgroupTree, find_cgroups
from heliostat.engines.local.engine import LocalEngine
from heliostat.models import (
    Attempt,
    AttemptEnded,
    Job,
    JobSpec,
    JobState,
    Mount,
    Observation,
    Resources,
    format_attempt_id,
)
from heliostat.runtimes.bubblewrap import filesystem_options

BENCHMARK = "runtimes"
IMAGE = "localhost/bench:latest"
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.1
_TELL_TIME = ("/bin/date", "+%s%N")
_SPECS = {
    "process": JobSpec(_TELL_TIME),
    "bubblewrap": JobSpec(_TELL_TIME, runtime="bubblewrap", network="host"),
    "podman": JobSpec(_TELL_TIME, image=IMAGE, runtime="podman", network="host"),
}
_LANGUAGE = "C.UTF-8"  # of every job; a program looks for its words when it starts
_LIMITS = CgroupLimits(memory_mib=512, cpus=1, pids=4096)
_IN_GROUP = ["/bin/sh", "-c", 'for file in $ENTER_FILES; do echo 0 >"$file"; done; exec "$@"', "sh"]
_PROGRAMS = {"process": "date", "bubblewrap": "bwrap", "podman": "podman"}


@dataclass(frozen=True, slots=True)
class StartTimes:
    """In seconds since the call."""

    start_seconds: float
    end_seconds: float

    def minus(self, other: StartTimes) -> StartTimes:
        return StartTimes(self.start_seconds - other.start_seconds, self.end_seconds - other.end_seconds)


@dataclass(frozen=True, slots=True)
class Round:
    """Each runtime started once, by the engine and by hand."""

    ours: dict[str, StartTimes]
    by_hand: dict[str, StartTimes]

    def added_by_runtime(self, name: str) -> tuple[StartTimes, StartTimes]:
        return self.ours[name].minus(self.ours["process"]), self.by_hand[name].minus(self.by_hand["process"])


def measure(settings: Settings) -> Iterator[Measurement]:
    names = [name for name, program in _PROGRAMS.items() if shutil.which(program)]
    for name in _PROGRAMS.keys() - set(names):
        yield Measurement(
            BENCHMARK, f"start-up, {name}", OUR_SYSTEM, None, "", "lower", f"no {_PROGRAMS[name]} here"
        )
    with tempfile.TemporaryDirectory(prefix="hb-") as folder:
        os.chmod(folder, 0o755)
        rounds = _rounds(Path(folder), names, settings.starts)
    for name in names:
        program, pairs = _PROGRAMS[name], [(one.ours[name], one.by_hand[name]) for one in rounds]
        yield from _compared(f"{name}, median", program, pairs)
        if name != "process":
            yield from _compared(
                f"added by {name}, median", program, [one.added_by_runtime(name) for one in rounds]
            )


def _compared(label: str, program: str, pairs: Sequence[tuple[StartTimes, StartTimes]]) -> Iterator[Measurement]:
    for what, time_of in (("start-up", attrgetter("up")), ("whole", attrgetter("over"))):
        for system, starts in zip((OUR_SYSTEM, f"{program} by hand"), zip(*pairs, strict=True), strict=True):
            found = [1000 * time_of(start) for start in starts]
            note = f"{min(found):.1f} to {max(found):.1f}"
            yield Measurement(BENCHMARK, f"{what} {label}", system, median(found), "ms", "lower", note)


def _rounds(home: Path, names: Sequence[str], starts: int) -> list[Round]:
    by_hand = {name: _by_hand(name, home) for name in names}
    for folder in ("jobs", "attempts"):
        (home / folder).mkdir()
    engine = LocalEngine(HeliostatSettings(Home(home), server=ServerSettings(simulate_gpus="1xA100")))
    groups, numbers = find_cgroups("bench"), count(1)
    ends: Queue[AttemptEnded] = Queue()
    engine.set_observation_callback(lambda seen: _put_ends(ends, seen))
    rounds: list[Round] = []
    try:
        for _ in range(starts + 1):
            rounds.append(Round({}, {}))
            for name in names:
                time.sleep(_PAUSE_SECONDS)
                rounds[-1].ours[name] = _by_engine(engine, name, next(numbers), ends)
                time.sleep(_PAUSE_SECONDS)
                rounds[-1].by_hand[name] = _timed(by_hand[name], next(numbers), groups)
    finally:
        _wait_until_clean(home)
        engine.close()
        if not isinstance(groups, CgroupsUnavailable):
            groups.remove()
    return rounds[1:]


def _put_ends(ends: Queue[AttemptEnded], seen: Sequence[Observation]) -> None:
    for one in seen:
        if isinstance(one, AttemptEnded):
            ends.put(one)


def _wait_until_clean(home: Path) -> None:
    """The engine takes away what a container has left after it has told its end."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while any(home.glob("jobs/*/*.container")) and time.monotonic() < deadline:
        time.sleep(0.01)


def _by_engine(engine: LocalEngine, name: str, number: int, ends: Queue[AttemptEnded]) -> StartTimes:
    attempt = _attempt(_SPECS[name], number)
    began = time.time_ns()
    engine.start([attempt])
    end = ends.get(timeout=_PATIENCE_SECONDS)
    over = time.time_ns()
    if end.exit_code != 0:
        raise RuntimeError(f"the job ended with {end}")
    told = engine.log_path(number, 1, "stdout").read_text()
    engine.forget([attempt.id])
    return StartTimes((int(told) - began) / 1e9, (over - began) / 1e9)


def _attempt(spec: JobSpec, number: int) -> Attempt:
    user = getpass.getuser()
    job = Job(
        id=number,
        kind="batch",
        name="bench",
        state=JobState.STARTING,
        user=user,
        unix_user=user,
        project="default",
        resources=Resources(_LIMITS.cpus or 1, _LIMITS.memory_mib or 0),
        spec=spec,
        submitted_at=datetime.now(UTC),
        attempt=1,
    )
    return Attempt(format_attempt_id(number, 1), job, "here")


def _by_hand(name: str, home: Path) -> list[str]:
    if name == "process":
        return [*_IN_GROUP, *_TELL_TIME]
    folders = [str(home / name / folder) for folder in ("work", "checkpoints")]
    for folder in folders:
        Path(folder).mkdir(parents=True)
    if name == "bubblewrap":
        words = ["bwrap", "--unshare-all", "--share-net", "--die-with-parent", "--cap-drop", "ALL", "--clearenv"]
        words += ["--setenv", "LANG", _LANGUAGE]
        own = [Mount(folder, folder) for folder in folders]
        bwrap = [*words, *filesystem_options(own), "--remount-ro", "/", "--chdir", folders[0], "--", *_TELL_TIME]
        return [*_IN_GROUP, *bwrap]
    store, run = home / "images" / getpass.getuser(), home / "run"
    for folder in (store, run):
        folder.mkdir(parents=True)
    podman = ["podman", f"--root={store}", f"--runroot={run}/c", f"--tmpdir={run}/t", "--storage-driver=overlay"]
    subprocess.run([*podman, "import", "--quiet", "-", IMAGE], input=_image(), check=True, capture_output=True)
    podman += ["--runtime=runc", "--cgroup-manager=cgroupfs", "--log-level=error"]
    limits = [f"--memory={_LIMITS.memory_mib}m", f"--cpus={_LIMITS.cpus}", f"--pids-limit={_LIMITS.pids}"]
    limits += ["--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096"]
    folders = [f"--volume={home}:{home}", f"--workdir={home}", f"--env=LANG={_LANGUAGE}"]
    return [
        *podman,
        "run",
        "--rm",
        "--init",
        *limits,
        *folders,
        "--network=host",
        "--pull=never",
        IMAGE,
        *_TELL_TIME,
    ]


def _timed(command: Sequence[str], number: int, groups: CgroupTree | CgroupsUnavailable) -> StartTimes:
    """In a group of its own, where the command wants one and the machine has them."""
    began = time.time_ns()
    if command[: len(_IN_GROUP)] != _IN_GROUP or isinstance(groups, CgroupsUnavailable):
        return _run(command, began)
    group = groups.create(f"{number}.1", _LIMITS)
    try:
        return _run(command, began, " ".join(group.enter_files))
    finally:
        while not group.remove():
            time.sleep(0.001)


def _run(command: Sequence[str], began: int, enter_files: str = "") -> StartTimes:
    environment = {**os.environ, "ENTER_FILES": enter_files}
    told = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment).stdout
    return StartTimes((int(told) - began) / 1e9, (time.time_ns() - began) / 1e9)


def _image() -> bytes:
    """A program that tells the time, what it is linked with, and nothing else."""
    program = _TELL_TIME[0]
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", dereference=True) as tar:
        for file in (program, *(word for word in linked.split() if word.startswith("/"))):
            tar.add(file, file.lstrip("/"))
    return made.getvalue()
