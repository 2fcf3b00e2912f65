"""KILL the server at random moments while workflows run: each is whole or not there, each decision falls once."""

import contextlib
import os
import random
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from heliostat.client import Client
from heliostat.errors import HeliostatError
from support.server_process import ServerProcess

WORKFLOWS, SIZE, KILLS = 8, 7, 7
SEED = int(os.environ.get("HELIOSTAT_CHAOS_SEED") or random.randrange(10**6))


@pytest.mark.timeout(900)
def test_every_job_runs_as_its_condition_says_with_the_values_it_was_handed(
    server: ServerProcess, tmp_path: Path
) -> None:
    print(f"to repeat: HELIOSTAT_CHAOS_SEED={SEED}")
    chance = random.Random(SEED)
    witness = tmp_path / "witness"
    witness.touch()
    made = [_workflow(chance, witness, number) for number in range(WORKFLOWS)]
    numbers = [server.client.workflows.submit(document).id for document, _ in made]
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.05, 0.6))  # the random moment itself, not a wait for something
        server.kill()
        server.start()
    found = [server.client.workflows.wait(number, 200).data for number in numbers]

    ran = Counter(witness.read_text().splitlines())
    for (document, fails), one in zip(made, found, strict=True):
        expected = _expected(document["jobs"], fails)
        assert {job["key"]: job["state"] for job in one["jobs"]} == expected
        for key, state in expected.items():
            lines = [line for line in ran if line.startswith(f"{document['name']} {key} ")]
            wanted = _line(document, key, expected) if state != "skipped" else None
            assert {line: ran[line] for line in lines} == ({wanted: 1} if wanted else {})


@pytest.mark.timeout(900)
def test_a_workflow_is_there_once_and_whole_or_not_at_all_however_often_it_is_sent(server: ServerProcess) -> None:
    chance = random.Random(SEED)
    size = 300
    document = {
        "name": "wide",
        "jobs": {"hold": {"command": ["true"], "held": True}, "all": {"command": ["true"], "needs": "hold"}},
    }
    document["jobs"]["all"]["matrix"] = {"x": list(range(size))}  # type: ignore[index]
    for _ in range(4):
        key = str(uuid.uuid4())
        sender = threading.Thread(target=_send, args=(server.home, document, key))
        sender.start()
        time.sleep(chance.uniform(0.0, 0.4))  # the random moment itself, not a wait for something
        server.kill()
        sender.join()
        server.start()
        before = len(server.client.workflows.list())
        number = server.client.workflows.submit(document, idempotency_key=key).id
        assert len(server.client.workflows.list()) - before in (0, 1)
        found = server.client.workflows.get(number).data
        assert found["counts"]["total"] == size + 1
        assert len({job["job_id"] for job in found["jobs"]}) == size + 1
    assert {one.data["counts"]["total"] for one in server.client.workflows.list()} == {size + 1}
    assert len(server.client.workflows.list()) == 4


def _send(home: Path, document: dict[str, Any], key: str) -> None:
    with contextlib.suppress(HeliostatError, OSError), Client(home=home) as client:
        client.workflows.submit(document, idempotency_key=key)


def _workflow(chance: random.Random, witness: Path, number: int) -> tuple[dict[str, Any], dict[str, bool]]:
    jobs: dict[str, Any] = {}
    fails: dict[str, bool] = {}
    name = f"w{number}"
    for place in range(SIZE):
        key = f"n{place}"
        needs = chance.sample(list(jobs), min(place, chance.choice((0, 1, 2))))
        fails[key] = chance.random() < 0.25
        script = (
            f'echo "{name} {key} $*" >> {witness}; echo v={key} >> $HELIOSTAT_OUTPUT; '
            f"sleep {chance.uniform(0, 0.2):.2f}; exit {int(fails[key])}"
        )
        values = [f"${{{{ jobs.{one}.state }}}}" for one in needs]
        jobs[key] = {"command": ["sh", "-c", script, "x", *values], "needs": needs, "cpus": 1, "memory": 64}
        if needs and (rule := chance.choice([None, None, "always()", "failure()"])):
            jobs[key]["if"] = rule
    return {"name": name, "jobs": jobs}, fails


def _expected(jobs: dict[str, Any], fails: dict[str, bool]) -> dict[str, str]:
    found: dict[str, str] = {}
    tainted: dict[str, bool] = {}
    for key, job in jobs.items():
        tainted[key] = any(found[one] == "failed" or tainted[one] for one in job["needs"])
        is_met = {
            None: all(found[one] == "completed" for one in job["needs"]),
            "always()": True,
            "failure()": tainted[key],
        }[job.get("if")]
        found[key] = "skipped" if not is_met else "failed" if fails[key] else "completed"
    return found


def _line(document: dict[str, Any], key: str, expected: dict[str, str]) -> str:
    handed = " ".join(expected[one] for one in document["jobs"][key]["needs"])
    return f"{document['name']} {key} {handed}"
