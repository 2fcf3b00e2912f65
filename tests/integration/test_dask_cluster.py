"""A real Dask cluster whose workers are jobs."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from integration.running_server import RunningServer

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv" / "dask" / "bin" / "python"
SCRIPT = Path(__file__).with_name("dask_script.py")


@pytest.mark.skipif(not PYTHON.exists(), reason="Dask is not installed: scripts/install --test does it")
def test_a_cluster_of_jobs_computes_grows_shrinks_and_leaves_nothing_behind(server: RunningServer) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "default"}
    words = [str(PYTHON), str(SCRIPT), str(server.home)]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=400, check=False, cwd="/")
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["sum"] == sum(number * number for number in range(60))
    assert set(told["ran_in"]) <= set(told["jobs"])
    assert len(told["jobs"]) == 2
    assert told["address"].startswith("tls://")
    assert told["adapted"] == 49
    states = {server.show(number)["state"] for number in told["jobs"]}
    assert states <= {"cancelled", "completed"}
