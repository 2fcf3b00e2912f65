"""From asking for packages to a program that has imported them, next to plain uv in the same run.

Cold: nothing is built, and nothing is in uv's cache. Warm: somebody has asked for the same before; by hand, the
virtual environment is there already. Packages are tiny and come from this machine: what is measured is what stands
around the download.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from bench.measurements import OUR_SYSTEM, Measurement
from bench.settings import Settings

BENCHMARK = "environments"
_PATIENCE_SECONDS = 120.0
_PYTHON = "/usr/bin/python3"
_USE = ("python", "-c", "import tiny")
_COLD_TRIES = 5


def measure(settings: Settings) -> Iterator[Measurement]:
    try:
        from uv import find_uv_bin

        uv = str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        yield Measurement(BENCHMARK, "cold start, median", OUR_SYSTEM, None, "", "lower", "not available: uv")
        return
    with tempfile.TemporaryDirectory(prefix="hb-") as folder:
        yield from _measured(uv, Path(folder), settings.starts)


def _measured(uv: str, folder: Path, starts: int) -> Iterator[Measurement]:
    sys.path.append(str(Path(__file__).parents[2] / "tests"))
    from support.package_index import running_package_index
    from support.server_process import ServerProcess

    with running_package_index(folder / "index") as index:
        for number in range(_COLD_TRIES):
            index.add_wheel("tiny", f"1.{number}")
        variables = {"UV_DEFAULT_INDEX": index.url, "UV_CACHE_DIR": str(folder / "cache")}
        with ServerProcess(folder / "home", environments={"uv_variables": variables}) as server:

            def ours(number: int) -> float:
                asked = {"requirements": f"tiny==1.{number}"}
                begun = time.perf_counter()
                job = server.client.submit(_USE, environment=asked).wait(_PATIENCE_SECONDS)
                if not job.ok:
                    raise RuntimeError(f"it has failed: {job.reason}")
                return time.perf_counter() - begun

            yield _figure("cold start, median", OUR_SYSTEM, [ours(number) for number in range(_COLD_TRIES)])
            by_hand = [_by_hand(uv, folder, variables, number) for number in range(_COLD_TRIES)]
            yield _figure("cold start, median", "uv by hand", by_hand)
            yield _figure("warm start, median", OUR_SYSTEM, [ours(0) for _ in range(starts)])
        yield _figure("warm start, median", "uv by hand", [_use(folder / "venv") for _ in range(starts)])


def _by_hand(uv: str, folder: Path, variables: dict[str, str], number: int) -> float:
    venv = folder / "venv"
    shutil.rmtree(venv, ignore_errors=True)
    shutil.rmtree(variables["UV_CACHE_DIR"], ignore_errors=True)
    environ = {**os.environ, **variables, "VIRTUAL_ENV": str(venv)}
    begun = time.perf_counter()
    for words in (
        [uv, "venv", "--quiet", "--python", _PYTHON, str(venv)],
        [uv, "pip", "install", "--quiet", "--compile-bytecode", f"tiny==1.{number}"],
    ):
        subprocess.run(words, env=environ, check=True)
    _use(venv)
    return time.perf_counter() - begun


def _use(venv: Path) -> float:
    begun = time.perf_counter()
    subprocess.run([str(venv / "bin" / _USE[0]), *_USE[1:]], check=True)
    return time.perf_counter() - begun


def _figure(label: str, system: str, seconds: Sequence[float]) -> Measurement:
    times = [one * 1000 for one in seconds]
    return Measurement(
        BENCHMARK, label, system, median(times), "ms", "lower", f"{min(times):.0f} to {max(times):.0f}"
    )
