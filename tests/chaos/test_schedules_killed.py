"""KILL the server at random moments and set its clock while schedules fire: each due time once, none left out."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from chaos.schedule_history import History, problems
from support.server_process import ServerProcess
from support.waiting import wait_until

SCHEDULES, TIMES, KILLS = 6, 8, 6
SEED = int(os.environ.get("HELIOSTAT_CHAOS_SEED") or random.randrange(10**6))
DAY = 86400
_NAMES = [f"s{number}" for number in range(SCHEDULES)]


class WrongClock:
    """By so many seconds."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "clock"
        self.set(0)

    def set(self, seconds: float) -> None:
        draft = self.file.with_suffix(".new")
        draft.write_text(str(seconds))
        draft.replace(self.file)


@pytest.fixture
def clock(tmp_path: Path) -> WrongClock:
    return WrongClock(tmp_path)


@dataclass(frozen=True)
class Storm:
    """What happens to the clock while the server is killed: by how many seconds it may be wrong, at random."""

    may_be_wrong_by: tuple[int, ...] = (0,)
    only_forward: bool = False
    kills: int = KILLS

    def blow(self, server: ServerProcess, clock: WrongClock, chance: random.Random) -> None:
        wrong_by = 0
        for _ in range(self.kills):
            time.sleep(chance.uniform(0.05, 1.0))  # the random moment itself, not a wait for something
            for kill_between in (True, False):
                if chance.random() < 0.6:
                    step = chance.choice(self.may_be_wrong_by)
                    wrong_by = wrong_by + step if self.only_forward else step
                    clock.set(wrong_by)
                if kill_between:
                    server.kill()
            server.start()


# A clock that goes back makes the server look again at times it has passed, which mends what it has left out.
# So two of the storms never turn it back: there each mistake stays, whatever the seed.
STORMS = {
    "the clock is right": Storm(),
    "the clock jumps ahead": Storm((0, 2, 5), only_forward=True),
    "the clock goes anywhere": Storm((-600, -20, -3, 0, 5, 30)),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("storm", STORMS.values(), ids=STORMS.keys())
def test_every_firing_happens_exactly_once_whatever_dies_and_whatever_the_clock_says(
    serve: Callable[..., ServerProcess], clock: WrongClock, tmp_path: Path, storm: Storm
) -> None:
    print(f"to repeat: HELIOSTAT_CHAOS_SEED={SEED}")
    history = _history(serve(queue={"min_schedule_seconds": 1}, cpus=8, clock=clock.file), clock, tmp_path, storm)
    assert problems(history) == []


SKIPS_AFTER_THE_FOURTH = """
import heliostat.services.schedules.firing as firing
rightly = firing._next_due
def skipping(tx, schedule, due_at, now):
    found = rightly(tx, schedule, due_at, now)
    return rightly(tx, schedule, found, now) if found and schedule.fired == 3 else found
firing._next_due = skipping
"""
FORGETS_THE_LATE = """
import heliostat.services.schedules.firing as firing
rightly = firing.decide_firing
firing.decide_firing = lambda timing, due_at, now, rule: rightly(timing, due_at, now, firing.CatchUpRule("none"))
"""
FORGETS_TO_WRITE_THE_FIRING_DOWN = """
import heliostat.services.schedules.firing as firing
rightly = firing.fired.add_firing
firing.fired.add_firing = lambda tx, one: 0 if one.schedule_id == 1 else rightly(tx, one)
"""
HARM = {
    "a due time is skipped after the fourth firing": SKIPS_AFTER_THE_FOURTH,
    "who is late is forgotten": FORGETS_THE_LATE,
    "a job is there without its firing": FORGETS_TO_WRITE_THE_FIRING_DOWN,
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("harm", HARM.values(), ids=HARM.keys())
def test_a_server_that_fires_wrongly_is_found_out(
    serve: Callable[..., ServerProcess], clock: WrongClock, tmp_path: Path, harm: str
) -> None:
    server = serve(queue={"min_schedule_seconds": 1}, cpus=8, clock=clock.file, harm=harm)
    found = problems(_history(server, clock, tmp_path, Storm(kills=0)))
    assert any("fired 0 times" in problem for problem in found), found


def _history(server: ServerProcess, clock: WrongClock, folder: Path, storm: Storm) -> History:
    """Of all schedules once their last job is over, each with as many due times as there are."""
    chance = random.Random(SEED)
    witness = folder / "witness"
    witness.touch()
    due = {name: _create(server, chance, name, witness) for name in _NAMES}
    storm.blow(server, clock, chance)
    clock.set(600)  # all of them are due now, or were
    wait_until(lambda: _are_over(server), "all schedules are finished and their jobs over", 240)
    wait_until(lambda: not list(server.client.jobs.list(unfinished=True)), "all jobs are over", 60)
    ran = Counter(line.rstrip() for line in witness.read_text().splitlines())
    return History(due, {name: server.client.schedules.firings(name, 1000) for name in due}, ran)


@pytest.mark.timeout(900)
def test_children_of_schedules_fire_once_for_each_success_whatever_dies(
    serve: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    server = serve(queue={"min_schedule_seconds": 1}, cpus=8)
    witness = tmp_path / "witness"
    witness.touch()
    job = {"command": f"echo $HELIOSTAT_SCHEDULE >> {witness}", "cpus": 1, "memory": 64}
    rules = {"overlap": "queue", "catch_up": "all", "epsilon": DAY}
    server.client.schedules.create("parent", "R5//PT3S", job, **rules)
    server.client.schedules.create("child", None, job, parents=["parent"], **rules)
    for _ in range(4):
        time.sleep(chance.uniform(0.2, 2.0))  # the random moment itself
        server.kill()
        server.start()
    wait_until(
        lambda: server.client.schedules.get("parent")["succeeded"] == 5, "the parent has succeeded five times", 90
    )
    # The success of the parent makes the child due in the same transaction; a moment later it fires.
    wait_until(lambda: server.client.schedules.get("child")["next_at"] is None, "the child is due no more", 60)
    wait_until(lambda: not list(server.client.jobs.list(unfinished=True)), "all jobs are over", 60)
    wait_until(lambda: _settled(server, "child"), "all is counted", 60)
    child = server.client.schedules.get("child")
    # Successes that come while the child is due already are one trigger for it, and none is forgotten.
    assert 1 <= child["fired"] <= 5
    assert Counter(witness.read_text().split()) == {"parent": 5, "child": child["fired"]}


def _create(server: ServerProcess, chance: random.Random, name: str, witness: Path) -> list[str]:
    """The times at which it is due."""
    job: dict[str, Any] = {
        "command": f'echo "$HELIOSTAT_SCHEDULE $HELIOSTAT_DUE_AT" >> {witness}',
        "cpus": 1,
        "memory": 64,
    }
    period = chance.choice([1, 1, 2, 3])
    made = server.client.schedules.create(
        name, f"R{TIMES}//PT{period}S", job, overlap="allow", catch_up="all", epsilon=DAY
    )
    first = _time(made["schedule"].split("/")[1])
    times = [first + timedelta(seconds=period * n) for n in range(TIMES)]
    return [at.isoformat().replace("+00:00", "Z") for at in times]


def _are_over(server: ServerProcess) -> bool:
    """Not that they did what they should: that is for the checker to say."""
    finished = all(one["state"] == "finished" for one in server.client.schedules.list())
    return finished and all(_settled(server, name) for name in _NAMES)


def _settled(server: ServerProcess, name: str) -> bool:
    return all(one["state"] != "running" for one in server.client.schedules.firings(name))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
