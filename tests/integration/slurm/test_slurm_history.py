"""The past of a real Slurm, brought in with the command that people type."""

import json
import os
import subprocess
import sys

from integration.running_server import RunningServer, wait_for
from integration.unix_users import needs_root
from support.slurm_cluster import SlurmTestCluster

pytestmark = needs_root
HOSTILE = "na|me\n99999|x|root"


def helio(server: RunningServer, slurm: SlurmTestCluster, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "heliostat.cli.main", *words]
    env = {**os.environ, **slurm.env, "HELIOSTAT_HOME": str(server.home)}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def test_what_ran_with_plain_sbatch_is_imported_once_whatever_it_is_called(slurm: SlurmTestCluster) -> None:
    numbers = [
        slurm.submit("sleep 1", f"--job-name={HOSTILE}", "--gres=gpu:1"),
        slurm.submit("exit 3"),
        slurm.submit("true", "--array=1-2"),
    ]

    def are_over() -> bool:
        wanted = ",".join(map(str, numbers))
        states = slurm.run("sacct", "-X", "-n", "-P", "-j", wanted, "--format=State,End").split()
        return len(states) == 4 and not any("Unknown" in state or "PENDING" in state for state in states)

    wait_for(are_over, "the accounting knows their ends")
    server = RunningServer('server.engine = "slurm"\n', {**os.environ, **slurm.env})
    try:
        server.run(command=["true"])
        array = server.ask("POST", "/jobs", {"command": ["true"], "array": "1-2"}).json["job_ids"]
        for number in array:
            server.finished(number)
        assert helio(server, slurm, "doctor", "--probe").stdout
        refused = helio(server, slurm, "history", "import", "slurm")
        assert (refused.returncode, "'root'" in refused.stderr) == (2, True), refused
        words = ("history", "import", "slurm", "--project", "*=default", "--json")
        first = json.loads(helio(server, slurm, *words).stdout)
        assert first["jobs"] >= 4
        assert first["skipped"].keys() >= {"jobs of this Heliostat", "probes of helio doctor"}, first
        assert json.loads(helio(server, slurm, *words).stdout)["jobs"] == 0
        items = server.ask("GET", "/jobs?limit=1000").json["items"]
        found = {job["source_number"]: job for job in items}
        assert found.keys() >= {str(numbers[0]), str(numbers[1]), f"{numbers[2]}_1", f"{numbers[2]}_2"}
        assert "99999" not in found
        named, failed = found[str(numbers[0])], found[str(numbers[1])]
        assert (named["name"], named["gpus"], named["state"], named["node"][0]) == ("na|me", 1, "completed", "n")
        assert (failed["state"], failed["exit_code"]) == ("failed", 3)
        assert "imported from Slurm" in helio(server, slurm, "ps", "--all").stdout
        assert server.submit(command=["true"]) > max(job["id"] for job in items)
    finally:
        server.remove()
