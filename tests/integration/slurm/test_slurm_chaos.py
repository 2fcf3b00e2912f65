"""Everything dies in turn while jobs flow: each job comes to its end once, and is known to have done so.

A controller of Slurm that is killed forgets its last seconds and later kills what it does not remember: who began
then begins once more, as asked for by `max_retries`, but nobody runs twice at a time or to the end twice.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heliostat.client import Client
from integration.running_server import RunningServer
from integration.unix_users import needs_root
from support.slurm_cluster import SlurmTestCluster, running_slurm

pytestmark = [needs_root, pytest.mark.chaos]
JOBS = int(os.environ.get("HELIOSTAT_CHAOS_JOBS") or 120)
KILLED_BY_SLURM = 9  # at most: see `_was_killed_for_another`
# The lock tells two runs of one job at the same time, the lines two runs one after the other.
WITNESS = """\
exec 3>>"$EVIDENCE/$HELIOSTAT_JOB_ID.lock"
flock -n 3 || echo "clash $HELIOSTAT_JOB_ID" >>"$EVIDENCE/lines"
echo "start $HELIOSTAT_JOB_ID $SLURM_JOB_ID" >>"$EVIDENCE/lines"
sleep "$1"
echo "end $HELIOSTAT_JOB_ID" >>"$EVIDENCE/lines"
"""


@pytest.fixture
def slurm() -> Iterator[SlurmTestCluster]:
    """One of its own: what Slurm has forgotten, it does not clean up."""
    with running_slurm() as cluster:
        yield cluster


@pytest.fixture
def server(slurm: SlurmTestCluster) -> Iterator[RunningServer]:
    server = RunningServer('server.engine = "slurm"\n', {**os.environ, **slurm.env})
    yield server
    server.remove()


def _submit(server: RunningServer, evidence: Path, chance: random.Random) -> set[int]:
    """Some one by one, some in one request, some as an array."""

    def job(**more: object) -> dict[str, object]:
        seconds = f"{chance.uniform(0, 2):.2f}"
        command = ["sh", "-c", WITNESS, "witness", seconds]
        gpus = chance.choice((0, 0, 1, 2))
        return {"command": command, "env": {"EVIDENCE": str(evidence)}, "gpus": gpus, "max_retries": 5, **more}

    client = _client(server)
    made = [client.submit(**job()).id for _ in range(JOBS // 6)]
    made += [each.id for each in client.submit_many([job() for _ in range(JOBS // 2)])]
    made += [each.id for each in client.submit(**job(array=f"1-{JOBS - len(made)}"))]
    return set(made)


def _disasters(server: RunningServer, slurm: SlurmTestCluster) -> list[Callable[[], None]]:
    def heliostat() -> None:
        server.process.kill()
        server.process.wait(120)
        server.start()

    def controller() -> None:
        slurm.kill_daemon("slurmctld")
        time.sleep(1)
        slurm.start_controller()

    def accounting() -> None:
        slurm.kill_daemon("slurmdbd")
        time.sleep(1)
        slurm.start_accounting()

    def node() -> None:
        slurm.kill_daemon("slurmd n2")
        time.sleep(1)
        slurm.start_node("n2")

    def all_at_once() -> None:
        slurm.kill_daemon("slurmctld")
        slurm.kill_daemon("slurmdbd")
        heliostat()
        slurm.start_accounting()
        slurm.start_controller()

    return [heliostat, controller, accounting, node, all_at_once, heliostat]


@pytest.mark.timeout(600)
def test_each_of_many_jobs_runs_once_while_everything_is_killed_in_turn(
    server: RunningServer, slurm: SlurmTestCluster, tmp_path: Path
) -> None:
    chance = random.Random(5)
    tmp_path.chmod(0o777)
    made = _submit(server, tmp_path, chance)
    assert len(made) == JOBS
    for disaster in _disasters(server, slurm):
        time.sleep(chance.uniform(0.5, 3))
        disaster()
    _wait_for_all(server, slurm)
    ended = {number: server.show(number) for number in made}
    completed = {number for number, job in ended.items() if job["state"] == "completed"}
    lines = (tmp_path / "lines").read_text().splitlines()
    ends = Counter(line for line in lines if line.startswith("end"))
    assert [line for line in lines if line.startswith("clash")] == []
    assert set(ends.values()) == {1}
    assert ends.keys() >= {f"end {number}" for number in completed}
    others = made - completed
    assert len(others) <= KILLED_BY_SLURM, _odd(ended)
    assert [number for number in others if not _was_killed_for_another(ended[number], lines)] == [], _odd(ended)


def _was_killed_for_another(job: dict[str, object], lines: list[str]) -> bool:
    """The one end but `completed` that is right: Slurm, which had forgotten who had its number, gave it to another
    as well, and ended both by it; that looks like a signal of their own. It never came to its end."""
    starts = [line.split()[1:] for line in lines if line.startswith("start")]
    its = {number for one, number in starts if one == str(job["id"])}
    shared = {number for one, number in starts if one != str(job["id"]) and number in its}
    is_of_signal = job["state"] == "failed" and job["exit_code"] in (137, 143)
    return is_of_signal and bool(shared) and f"end {job['id']}" not in lines


def _client(server: RunningServer) -> Client:
    return Client(f"unix:{server.home}/heliostat.sock")


def _wait_for_all(server: RunningServer, slurm: SlurmTestCluster) -> None:
    """Slurm takes nodes out of use on which it finds a number that it gave twice: an admin puts them back."""
    deadline = time.monotonic() + 300
    while left := [job.id for job in _client(server).jobs.list(unfinished=True)]:
        assert time.monotonic() < deadline, f"{left} never end\n{slurm.run('squeue')}"
        slurm.resume_nodes()
        time.sleep(1)


def _odd(jobs: dict[int, dict[str, object]]) -> list[object]:
    return [(number, job["state"], job["reason"]) for number, job in jobs.items() if job["state"] != "completed"]
