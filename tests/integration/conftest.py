import os
from collections.abc import Iterator

import pytest

from integration.running_server import RunningServer
from integration.unix_users import Person, people
from support.slurm_cluster import SlurmTestCluster, running_slurm


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmTestCluster]:
    """A real Slurm of four nodes, started once for all tests."""
    with running_slurm() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """A server with four made-up GPUs, started by whoever runs the tests."""
    server = RunningServer('server.simulate_gpus = "4xA100"\nserver.node_name = "here"\n')
    yield server
    server.remove()


@pytest.fixture(scope="session")
def two_unix_users() -> Iterator[list[Person]]:
    """Two Unix users who share a group and nothing else."""
    if os.geteuid() != 0:
        pytest.skip("makes Unix users and acts as them, so it needs root")
    number = os.getpid()
    with people(f"ht{number}ann", f"ht{number}bob", group=f"ht{number}lab") as made:
        yield made


@pytest.fixture
def ann(two_unix_users: list[Person]) -> Person:
    return two_unix_users[0]


@pytest.fixture
def bob(two_unix_users: list[Person]) -> Person:
    return two_unix_users[1]
