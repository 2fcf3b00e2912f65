"""KILL the server at random moments while people use it. The jobs themselves testify what happened."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.crowd import Crowd, Promise
from chaos.evidence import Evidence, Line
from heliostat.client import Client
from heliostat.client.api_types import JobData
from heliostat.engines.local.processes import process_start_time
from heliostat.store.database import Store
from heliostat.store.schema_upgrade import migrate
from support.server_process import ServerProcess
from support.waiting import wait_until

ROUNDS = int(os.environ.get("HELIOSTAT_CHAOS_ROUNDS") or 20)
SEED = int(os.environ.get("HELIOSTAT_CHAOS_SEED") or random.randrange(10**6))


@pytest.mark.timeout(900)
def test_kills_lose_no_job_run_none_twice_and_mix_up_neither_devices_nor_exit_codes(
    server: ServerProcess, tmp_path: Path
) -> None:
    print(f"to repeat: HELIOSTAT_CHAOS_SEED={SEED}")
    evidence = Evidence(tmp_path / "evidence")
    long_job = server.client.submit(**evidence.job("until", 7), gpus=1, cpus=1, memory=64)
    (said,) = wait_until(lambda: evidence.lines("start", long_job.id), "the long job runs")
    born = process_start_time(said.pid)
    crowd = Crowd(server.client, evidence, SEED, most_unfinished=25)
    crowd.start()
    try:
        for _ in range(ROUNDS):
            _live_and_die(server, random.Random(SEED + _))
            assert process_start_time(said.pid) == born, "the long job was touched"
        server.wait_until_ready()
    finally:
        crowd.stop()
    assert not crowd.failures, crowd.failures
    crowd.release_everything()
    evidence.let_the_long_one_finish()
    server.client.wait([long_job, *crowd.promises], timeout=60)
    print(
        f"{len(crowd.promises)} jobs, {len(evidence.lines('start'))} attempts ran, {crowd.broken} broken requests"
    )

    assert len(crowd.promises) > ROUNDS
    assert crowd.broken > 0
    _check_the_long_job(long_job.data, evidence)
    _check_idempotency(server.client, crowd, long_job.id)
    for promise in crowd.promises.values():
        _check_promise(promise, server.client.jobs.get(promise.job_id).data, evidence)
    _check_events(server.client, evidence)
    assert evidence.attempts_that_ran_twice() == []
    assert evidence.clashes() == []
    assert evidence.device_overlaps() == []
    server.assert_no_attempt_left()


@pytest.mark.parametrize("way", ["migrate", "upgrade"])
@pytest.mark.parametrize("statement", range(1, 16, 4))
def test_a_schema_whose_making_was_killed_half_way_is_made_at_the_next_start(
    tmp_path: Path, statement: int, way: str
) -> None:
    """Killed right before one of the statements that make the tables."""
    database = tmp_path / "heliostat.db"
    killed = subprocess.run([sys.executable, "-c", _MIGRATE_AND_DIE, database, str(statement), way], check=False)
    assert killed.returncode == -signal.SIGKILL
    migrate(database)
    migrate(database)
    Store(database).close()


def test_a_server_killed_during_its_very_first_start_starts_the_next_time(
    serve: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    print(f"to repeat: HELIOSTAT_CHAOS_SEED={SEED}")
    chance = random.Random(SEED)
    for number in range(3):
        home = tmp_path / f"home-{number}"
        unlucky = ServerProcess(home)
        unlucky.start_without_waiting()
        wait_until((home / "server.lock").exists, "the first start is under way")
        time.sleep(chance.uniform(0, 0.5))  # the random moment itself, not a wait for something
        unlucky.kill()
        server = serve(home)
        assert server.client.submit("exit 5").wait(120).exit_code == 5
        server.tear_down()


_MIGRATE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from sqlalchemy import Engine, event
from heliostat.store import schema_upgrade

left = int(sys.argv[2])

@event.listens_for(Engine, "before_cursor_execute")
def count(conn, cursor, statement, *_):
    global left
    left -= statement.lstrip().upper().startswith(("CREATE", "INSERT"))
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

getattr(schema_upgrade, sys.argv[3])(Path(sys.argv[1]))
"""


def _live_and_die(server: ServerProcess, chance: random.Random) -> None:
    """One round: the server comes up, lives for a random while and dies. Sometimes it does not even come up."""
    server.kill()
    server.start_without_waiting()
    if chance.random() < 0.25:
        time.sleep(chance.uniform(0, 0.8))  # the random moment itself, not a wait for something
        return
    server.wait_until_ready()
    time.sleep(chance.uniform(0, 0.6))


def _check_the_long_job(data: JobData, evidence: Evidence) -> None:
    assert (data["state"], data["exit_code"], data["attempt"]) == ("failed", 7, 1)
    assert [line.kind for line in evidence.lines(job_id=data["id"])] == ["start", "end"]


def _check_idempotency(client: Client, crowd: Crowd, long_job_id: int) -> None:
    """What is stored is what was acknowledged, once; asking again gives the same."""
    stored = [job.id for job in client.jobs.list()]
    assert sorted(stored) == sorted([long_job_id, *crowd.promises])
    assert crowd.repeated
    for first, again in crowd.repeated:
        assert first == again


def _check_promise(promise: Promise, data: JobData, evidence: Evidence) -> None:
    lines = evidence.lines(job_id=promise.job_id)
    told = f"{promise} {data} {lines}"
    assert promise.over_as in (None, data["state"]), f"a terminal state has changed: {told}"
    assert max((line.attempt for line in lines), default=0) <= data["attempt"], told
    last = [line for line in lines if line.attempt == data["attempt"]]
    if data["state"] == "cancelled":
        assert promise.cancel_asked, told
        assert not last or _was_ended(last, data), told
        return
    assert data["state"] == ("completed" if promise.exit_code == 0 else "failed"), told
    assert data["exit_code"] == promise.exit_code, told
    assert [line.kind for line in last] == ["start", "end"], told
    assert last[-1].detail == str(promise.exit_code), told


def _was_ended(last: list[Line], data: JobData) -> bool:
    """A job's own word about its end, if it had the time for one, is also the recorded one."""
    return last[-1].kind == "start" or data["exit_code"] in (int(last[-1].detail), 137, 143, None)


def _check_events(client: Client, evidence: Evidence) -> None:
    """An attempt recorded as never started has not said a word."""
    started = {line.attempt_id for line in evidence.lines("start")}
    events = list(client.events.list(after=0))
    never = {f"{event['job_id']}.{event['attempt']}" for event in events if event["kind"] == "not_started"}
    assert not never & started
    assert not [event for event in events if event["kind"] == "lost"]
