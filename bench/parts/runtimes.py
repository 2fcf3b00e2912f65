"""What a start costs in each runtime, next to calling its tool by hand in the same run.

The job does nothing; the time is that from its start by the engine to the word that it has ended. By hand, the
tool is called as somebody would who needs the same: one command, the same folders, its image already there. What
a runtime adds is that time less the one of a plain process; by hand, less the one of the program alone.
"""

from __future__ import annotations

import getpass
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from bench.figures import OURS, Figure
from bench.settings import Settings
from heliostat.config import Home
from heliostat.config import Settings as ServerSettings
from heliostat.engines.local.engine import LocalEngine
from heliostat.models import Attempt, Ended, Job, JobSpec, JobState, Mount, Observation, Resources, attempt_id
from heliostat.runtimes.bubblewrap import room_words

PART = "runtimes"
IMAGE = "localhost/bench:latest"
_PATIENCE_SECONDS = 60.0
_SPECS = {
    "process": JobSpec(("/bin/true",)),
    "bubblewrap": JobSpec(("/bin/true",), runtime="bubblewrap", network="host"),
    "podman": JobSpec(("/bin/true",), image=IMAGE, runtime="podman", network="host"),
}
_PROGRAMS = {"process": "true", "bubblewrap": "bwrap", "podman": "podman"}


def measure(settings: Settings) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="hb-") as folder:
        os.chmod(folder, 0o755)
        plain: tuple[float, float] | None = None
        for name, spec in _SPECS.items():
            label = f"a job that does nothing, {name}, median"
            if shutil.which(_PROGRAMS[name]) is None:
                yield Figure(PART, label, OURS, None, "", "lower", f"not available: {_PROGRAMS[name]}")
                continue
            home = Path(folder, name)
            home.mkdir()
            by_hand = _by_hand(name, home)
            ours, theirs = (
                _by_engine(home, spec, settings.starts),
                [_timed(by_hand) for _ in range(settings.starts)],
            )
            found = median(ours), median(theirs)
            yield from _figures(label, _PROGRAMS[name], found, (_spread(ours), _spread(theirs)))
            if plain is None:
                plain = found
                continue
            added = found[0] - plain[0], found[1] - plain[1]
            yield from _figures(f"added by {name}", _PROGRAMS[name], added, ("", ""))


def _figures(label: str, program: str, seconds: tuple[float, float], notes: tuple[str, str]) -> Iterator[Figure]:
    for system, value, note in zip((OURS, f"{program} by hand"), seconds, notes, strict=True):
        yield Figure(PART, label, system, 1000 * value, "ms", "lower", note)


def _spread(seconds: Sequence[float]) -> str:
    return f"{1000 * min(seconds):.1f} to {1000 * max(seconds):.1f}"


def _by_engine(home: Path, spec: JobSpec, starts: int) -> list[float]:
    for name in ("jobs", "attempts"):
        (home / name).mkdir()
    engine = LocalEngine(ServerSettings(Home(home), simulate_gpus="1xA100"))
    over = threading.Event()
    codes: list[int | None] = []

    def heard(observations: Sequence[Observation]) -> None:
        for one in observations:
            if isinstance(one, Ended):
                codes.append(one.exit_code)
                over.set()

    engine.on_observation(heard)
    try:
        return [_one(engine, spec, number, over, codes) for number in range(1, starts + 2)][1:]
    finally:
        _wait_until_clean(home)
        engine.close()


def _wait_until_clean(home: Path) -> None:
    """The engine takes away what a container has left after it has told its end."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while any(home.glob("jobs/*/*.container")) and time.monotonic() < deadline:
        time.sleep(0.01)


def _one(engine: LocalEngine, spec: JobSpec, number: int, over: threading.Event, codes: list[int | None]) -> float:
    over.clear()
    attempt = _attempt(spec, number)
    began = time.perf_counter()
    engine.start([attempt])
    if not over.wait(_PATIENCE_SECONDS) or codes[-1] != 0:
        raise RuntimeError(f"the job ended with {codes[-1:] or 'nothing'}")
    seconds = time.perf_counter() - began
    engine.forget([attempt.id])
    return seconds


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
        resources=Resources(1, 512),
        spec=spec,
        submitted_at=datetime.now(UTC),
        attempt=1,
    )
    return Attempt(attempt_id(number, 1), job, "here")


def _by_hand(name: str, home: Path) -> list[str]:
    if name == "process":
        return ["/bin/sh", "-c", "/bin/true"]
    if name == "bubblewrap":
        words = ["bwrap", "--unshare-all", "--share-net", "--die-with-parent", "--cap-drop", "ALL", "--clearenv"]
        own = Mount(str(home), str(home), read_only=False)
        return [*words, *room_words([own]), "--remount-ro", "/", "--chdir", str(home), "--", "/bin/true"]
    store, run = home / "images" / getpass.getuser(), home / "run"
    for folder in (store, run):
        folder.mkdir(parents=True)
    podman = ["podman", f"--root={store}", f"--runroot={run}/c", f"--tmpdir={run}/t", "--storage-driver=overlay"]
    subprocess.run([*podman, "import", "--quiet", "-", IMAGE], input=_image(), check=True, capture_output=True)
    podman += ["--runtime=runc", "--cgroup-manager=cgroupfs", "--log-level=error"]
    limits = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=4096:4096"]
    return [*podman, "run", "--rm", "--init", *limits, "--network=host", "--pull=never", IMAGE, "/bin/true"]


def _timed(command: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def _image() -> bytes:
    """A busybox, and nothing else."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        tar.add(shutil.which("busybox") or "/bin/busybox", "bin/busybox")
        link = tarfile.TarInfo("bin/true")
        link.type, link.linkname = tarfile.SYMTYPE, "busybox"
        tar.addfile(link)
    return made.getvalue()
