"""The API does what its own description says: Schemathesis makes requests from it, valid and invalid ones."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.running_server import RunningServer

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / ".venv/schemathesis/bin/schemathesis"
NOT_ASKED = "|".join(
    [
        "/(login|doctor|jobs/wait|events/stream)$|/(follow|exec)$",  # slow or endless
        "/(password|pause|unpause)$|/tokens/|/users/[{]name[}]$",  # they could lock the tests out
        "/(services|services/[{]name[}]|sessions|notebooks|schedules|schedules/[{]reference[}]|jobs/bulk|when)$",
    ]
)
"""The last have the fields of a job, as `POST /jobs`."""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer('server.engine = "simulated"\nserver.simulated_nodes = "2x4xA100"\n')
    yield server
    server.remove()


@pytest.mark.skipif(not PROGRAM.exists(), reason="Schemathesis is not installed: scripts/install --test")
def test_requests_are_accepted_and_refused_as_the_description_says(server: RunningServer, tmp_path: Path) -> None:
    token = server.ask("POST", "/tokens", {"name": "schemathesis"}).json["token"]
    command = [
        *(str(PROGRAM), "--config-file", str(Path(__file__).with_name("schemathesis.toml"))),
        *("run", f"{server.url}/api/v1/openapi.json", "--header", f"Authorization: Bearer {token}"),
        *("--phases", "coverage", "--seed", "1", "--workers", "2", "--continue-on-failure", "--no-color"),
        *("--warnings", "off", "--exclude-path-regex", NOT_ASKED),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, "\n".join(line[:300] for line in done.stdout.splitlines())[-20_000:]
    assert "Traceback" not in server.log
