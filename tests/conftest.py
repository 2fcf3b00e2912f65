"""For all tests."""

import os
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support.hypothesis_examples import example_count

# How long an example takes says something about the machine, not about the code. The suite tries the same examples
# each time, so that a change is blamed for its own faults only; HYPOTHESIS_PROFILE=search tries new ones.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "same", settings.get_profile("search"), derandomize=True, max_examples=example_count(100)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

# Folders whose tests wait most of the time for what they started, and those whose tests keep the processors busy.
_WAITING = ("integration/slurm", "integration/local", "integration")
_BUSY = ("chaos", "browser", "unit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that wait and files that work take turns, so that the processors are neither idle nor overloaded. What
    takes minutes comes before what takes seconds: at the end, no worker is left alone with a long file."""
    turns = _turns({item.path for item in items})
    items.sort(key=lambda item: turns[item.path])


def _turns(files: Collection[Path]) -> dict[Path, tuple[int, int]]:
    found = {}
    for kind, folders in enumerate((_WAITING, _BUSY)):
        those = sorted((place, file) for file in files if (place := _place(file, folders)) is not None)
        found |= {file: (turn, kind) for turn, (_, file) in enumerate(those)}
    return found


def _place(file: Path, folders: tuple[str, ...]) -> int | None:
    path = file.relative_to(Path(__file__).parent).as_posix()
    return next((place for place, folder in enumerate(folders) if path.startswith(folder + "/")), None)
