"""Each engine that there is, at work in a folder of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract import ENGINES, Bench, slurm


def _bench(kind: str, request: pytest.FixtureRequest, folder: Path) -> Bench:
    if kind == "slurm":
        return Bench(slurm(folder, request.getfixturevalue("slurm")), folder)
    return Bench(ENGINES[kind](folder), folder)


@pytest.fixture(params=[*ENGINES, "slurm"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = _bench(request.param, request, tmp_path)
    yield bench
    bench.tear_down()


@pytest.fixture(params=["local", "slurm"])
def programs_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """Of an engine whose attempts are real programs."""
    bench = _bench(request.param, request, tmp_path)
    yield bench
    bench.tear_down()
