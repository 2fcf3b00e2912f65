"""A server of one machine moves to a real Slurm, and people hardly notice."""

import json
import os
import subprocess
import sys

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.slurm_cluster import SlurmTestCluster

pytestmark = needs_root
SETTINGS = '# one machine\nserver.simulate_gpus = "1xA100"\nserver.node_name = "here"\n'


def helio(server: RunningServer, slurm: SlurmTestCluster, *words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "heliostat.cli.main", *words]
    env = {**os.environ, **slurm.env, "HELIOSTAT_HOME": str(server.home)}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def remove_accounts(slurm: SlurmTestCluster, person: Person) -> None:
    """So that the next test finds none of ours."""
    slurm.remove_user(person.name)
    for kind, names in (("account", "default"), ("account", "_default"), ("qos", "scavenger,interactive,urgent")):
        slurm.run("sacctmgr", "-i", "-Q", "delete", kind, f"name={names}")


def test_people_history_numbers_and_waiting_jobs_come_along(
    slurm: SlurmTestCluster, two_unix_users: list[Person]
) -> None:
    ann = two_unix_users[0]  # without an account in Slurm
    server = RunningServer(SETTINGS, {**os.environ, **slurm.env})
    try:
        done = server.run(ann.uid, command=["echo", "here"])
        running = server.submit(command=["sleep", "600"], gpus=1)
        wait_for(lambda: server.show(running)["state"] == "running", "it runs")
        script = ["sh", "-c", "echo $HELIOSTAT_NODE; id -un"]
        waiting = server.submit(ann.uid, command=script, gpus=1, cpus=1, memory="1G")
        unfit = server.submit(command=["true"], gpus=1, gpu_type="A100")
        seen = helio(server, slurm, "migrate", "slurm", "--dry-run", "--json")
        plan = json.loads(seen.stdout)
        assert (plan["active"], [one["job_id"] for one in plan["unfit"]]) == ([running], [unfit])
        assert f"Add {ann.name} to the account default." in plan["account_steps"]
        assert "is running" in helio(server, slurm, "migrate", "slurm").stderr

        server.ask("POST", "/nodes/here/drain", {"reason": "moving"})
        server.ask("POST", f"/jobs/{running}/cancel")
        server.finished(running)
        server.stop()
        refused = helio(server, slurm, "migrate", "slurm")
        assert (refused.returncode != 0, f"these jobs: {unfit}" in refused.stderr) == (True, True), refused
        moved = helio(server, slurm, "migrate", "slurm", "--hold")
        assert moved.returncode == 0, moved
        assert (server.home / "cluster.toml").read_text() == 'server.engine = "slurm"\n' + SETTINGS

        server.start()
        job = server.finished(waiting, ann.uid)
        assert (job["state"], job["node"] in ("n1", "n2", "n3", "n4")) == ("completed", True), job
        assert server.output(waiting, ann.uid) == f"{job['node']}\n{ann.name}\n"
        assert (server.show(unfit)["state"], "migration to Slurm" in server.show(unfit)["reason"]) == (
            "held",
            True,
        )
        past = server.show(done["id"], ann.uid)
        assert (past["state"], past["node"], server.output(done["id"], ann.uid)) == ("completed", "here", "here\n")
        assert server.submit(command=["true"]) == unfit + 1
        assert "already" in helio(server, slurm, "migrate", "slurm").stdout
    finally:
        server.remove()
    remove_accounts(slurm, ann)
