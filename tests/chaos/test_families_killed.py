"""KILL the server at random moments while jobs wait for one another: nobody is forgotten, nobody told twice."""

import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from heliostat.models import DependencyCondition, JobState
from support.server_process import ServerProcess

FAMILIES, SIZE, KILLS = 15, 6, 8
SEED = int(os.environ.get("HELIOSTAT_CHAOS_SEED") or random.randrange(10**6))
_FIELDS = {
    DependencyCondition.OK: "after",
    DependencyCondition.ANY: "after_any",
    DependencyCondition.FAILED: "after_failed",
}
Edges = dict[int, list[tuple[int, DependencyCondition]]]


@pytest.mark.timeout(900)
def test_every_child_starts_once_or_is_cancelled_as_its_rules_say(server: ServerProcess, tmp_path: Path) -> None:
    print(f"to repeat: HELIOSTAT_CHAOS_SEED={SEED}")
    chance = random.Random(SEED)
    witness = tmp_path / "witness"
    witness.touch()
    promised: Edges = {}
    exits: dict[int, int] = {}
    for _ in range(FAMILIES):
        _submit_family(server, chance, witness, promised, exits)
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.05, 0.6))  # the random moment itself, not a wait for something
        server.kill()
        server.start()
    server.client.wait(list(promised), timeout=120)

    states = {job_id: JobState(server.client.jobs.get(job_id).data["state"]) for job_id in promised}
    ran = Counter(map(int, witness.read_text().split()))
    for job_id, parents in promised.items():
        should_run = all(rule.is_met_by(states[parent]) for parent, rule in parents)
        assert ran[job_id] == int(should_run), f"job {job_id} ran {ran[job_id]} times"
        wanted = JobState.CANCELLED if not should_run else JobState.FAILED if exits[job_id] else JobState.COMPLETED
        assert states[job_id] is wanted
    _check_events(server, promised)


def _submit_family(
    server: ServerProcess, chance: random.Random, witness: Path, promised: Edges, exits: Any
) -> None:
    bodies: list[dict[str, Any]] = []
    edges: list[list[tuple[int, DependencyCondition]]] = []
    codes = [int(chance.random() < 0.25) for _ in range(SIZE)]
    for number in range(SIZE):
        parents = chance.sample(range(number), min(number, chance.choice((0, 1, 1, 2))))
        rules = [
            chance.choice(
                (
                    DependencyCondition.OK,
                    DependencyCondition.OK,
                    DependencyCondition.ANY,
                    DependencyCondition.FAILED,
                )
            )
            for _ in parents
        ]
        edges.append(list(zip(parents, rules, strict=True)))
        command = f"echo $HELIOSTAT_JOB_ID >> {witness}; sleep {chance.uniform(0, 0.2):.2f}; exit {codes[number]}"
        body: dict[str, Any] = {"command": command, "name": f"n{number}", "cpus": 1, "memory": 64}
        for parent, rule in edges[-1]:
            body.setdefault(_FIELDS[rule], []).append(f"n{parent}")
        bodies.append(body)
    ids = server.client.submit_bodies(bodies)["job_ids"]
    for job_id, wanted, code in zip(ids, edges, codes, strict=True):
        promised[job_id] = [(ids[parent], rule) for parent, rule in wanted]
        exits[job_id] = code


def _check_events(server: ServerProcess, promised: Edges) -> None:
    told = Counter((event["job_id"], event["kind"]) for event in server.client.events.list(after=0))
    for job_id, parents in promised.items():
        assert told[job_id, "ended"] == 1
        assert told[job_id, "parents_over"] <= bool(parents)
