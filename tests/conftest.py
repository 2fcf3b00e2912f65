"""For all tests."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from support.examples import examples

# How long an example takes says something about the machine, not about the code. The suite tries the same examples
# each time, so that a change is blamed for its own faults only; HYPOTHESIS_PROFILE=search tries new ones.
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("search"), derandomize=True, max_examples=examples(100))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

_LONGEST_FIRST = ("chaos", "browser", "integration/slurm", "integration/local", "integration", "unit")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes before what takes seconds: at the end, no worker is left alone with a long file."""
    items.sort(key=lambda item: _place(item.path.relative_to(Path(__file__).parent).as_posix()))


def _place(path: str) -> int:
    return next(place for place, folder in enumerate(_LONGEST_FIRST) if path.startswith(folder + "/"))
