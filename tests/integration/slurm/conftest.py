from collections.abc import Iterator

import pytest

from support.own_slurm import OurOwn, own_slurm


@pytest.fixture(scope="session")
def own() -> Iterator[OurOwn]:
    """One that Heliostat has set up, which keeps jobs in control groups."""
    with own_slurm() as own:
        yield own
