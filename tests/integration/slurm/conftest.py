from collections.abc import Iterator

import pytest

from support.provisioned_slurm import ProvisionedSlurm, running_provisioned_slurm


@pytest.fixture(scope="session")
def provisioned_slurm() -> Iterator[ProvisionedSlurm]:
    """One that Heliostat has set up, which keeps jobs in control groups."""
    with running_provisioned_slurm() as own:
        yield own
