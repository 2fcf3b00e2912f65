"""Looks from the nodes: a tiny job on one node of each partition says whether it sees what this machine sees.

Only when asked (`helio doctor --probe`): it takes seconds, and a place in Slurm's queue. What it found is kept.
"""

import contextlib
import fcntl
import json
import os
import secrets
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path

from heliostat.config import Settings
from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.probe_words import TRAY, Found, Question, answer_of, judged, not_tried, srun_argv
from heliostat.engines.slurm.programs import SlurmRefused
from heliostat.errors import Conflict, EngineUnavailable

_MOST_PARTITIONS = 16
_MOST_USERS = 200
_AT_THE_SAME_TIME = 4


def probe(
    settings: Settings, users: Mapping[str, tuple[int, int]], commands: Commands | None = None
) -> list[Found]:
    """Ask a node of each partition, and keep what was found. `users`: uid and gid of each, as here.

    Raises EngineUnavailable while Slurm does not answer at all, and Conflict while another asks.
    """
    commands = commands or Commands.of(settings.home)
    with _one_at_a_time(settings), _marker(settings.home.path) as (folder, word):
        partitions = [name for name, one in sorted(commands.partitions().items()) if one.is_open and one.nodes]
        question = Question(folder, word, dict(islice(users.items(), _MOST_USERS)))
        ask = partial(_ask, commands, settings, question)
        with ThreadPoolExecutor(_AT_THE_SAME_TIME) as pool:
            found = [one for answer in pool.map(ask, partitions[:_MOST_PARTITIONS]) for one in answer]
        _keep(settings, found)
    return found


def last_probe(settings: Settings) -> Iterator[Found]:
    """What the last one found, with its age; how to make one, if there was none."""
    try:
        kept = json.loads(_path(settings).read_text(encoding="utf-8"))
        hours, found = (time.time() - kept["at"]) / 3600, [tuple(one) for one in kept["found"]]
    except (OSError, ValueError, KeyError, TypeError):
        shared = f"Whether the nodes see {settings.home.jobs} and know the same users has not been tried."
        yield "slurm", "warning", shared, "helio doctor --probe"
        return
    age = "" if hours < 1 else f" ({hours:.0f} h ago)" if hours < 48 else f" ({hours / 24:.0f} days ago)"
    for check, level, message, hint in found:
        again = "" if level == "ok" else " Then: helio doctor --probe"
        yield check, level, f"{message}{age}", None if hint is None else hint.rstrip(".") + "." + again


def _ask(commands: Commands, settings: Settings, question: Question, partition: str) -> list[Found]:
    before = time.time()
    try:
        said = commands.ask(srun_argv(partition, question))
    except SlurmRefused as error:
        return [not_tried(partition, str(error))]
    except EngineUnavailable as error:
        return [not_tried(partition, error.message)]
    return judged(partition, str(settings.home.path), question, answer_of(said), (before, time.time()))


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
    tray, marker = folder / TRAY, folder / "word"
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


def _keep(settings: Settings, found: list[Found]) -> None:
    path = _path(settings)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".probe-", delete=False) as file:
        json.dump({"at": time.time(), "found": found}, file)
    os.replace(file.name, path)


def _path(settings: Settings) -> Path:
    return settings.home.attempts / "probed.json"
