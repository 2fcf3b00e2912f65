"""What is special to the way through slurmrestd; the common cases, for both ways, are in test_slurm_end_to_end."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.rest import RestCommands
from heliostat.engines.slurm.rest_http import RestApi
from heliostat.engines.slurm.rest_token import TokenFile
from integration.running_server import RunningServer, wait_for
from integration.unix_users import needs_root
from support.slurm import TestCluster

pytestmark = needs_root
DIFFERENT = ("JobId", "ArrayJobId", "AllocNode:Sid", "SubmitTime", "EligibleTime", "AccrueTime", "LastSchedEval")


@pytest.fixture(scope="module")
def server(slurm: TestCluster) -> Iterator[RunningServer]:
    """Without Slurm's tools: nothing of them is in its PATH."""
    slurm.start_rest()
    server = RunningServer(f'engine = "slurm"\n{slurm.rest_settings}', {**os.environ, "PATH": "/nonexistent"})
    yield server
    server.remove()


def test_gangs_and_arrays_run_without_slurms_tools(server: RunningServer) -> None:
    ranks = 'echo "$RANK of $WORLD_SIZE on $HELIOSTAT_NODE"'
    gang = server.run(command=["sh", "-c", ranks], tasks=2, layout="spread", gpus=1, gpu_type="a100")
    lines = server.output(gang["id"]).splitlines()
    assert sorted(line.partition(" on ")[0] for line in lines) == ["0 of 2", "1 of 2"]
    assert len({line.rpartition(" ")[2] for line in lines}) == 2
    made = server.ask("POST", "/jobs", {"command": ["sh", "-c", "sleep 1; exit 3"], "array": "0-2%1"}).json
    first, second, third = made["job_ids"]
    wait_for(lambda: server.show(first)["state"] == "running", "the first runs")
    server.ask("POST", f"/jobs/{third}/cancel")
    assert [server.finished(job)["state"] for job in (first, second, third)] == ["failed", "failed", "cancelled"]
    assert server.show(second)["exit_code"] == 3


def test_more_time_is_given_without_slurms_tools(server: RunningServer, slurm: TestCluster) -> None:
    job = server.submit(command=["sleep", "600"], cpus=1, time_limit="1h")
    element = server.ask("POST", "/jobs", {"command": ["sleep", "600"], "array": "0-1", "time_limit": "1h"}).json
    jobs = (job, element["job_ids"][1])
    for one in jobs:
        wait_for(lambda one=one: server.show(one)["state"] == "running", "it runs", lambda: server.log)
        answer = server.ask("POST", f"/jobs/{one}/extend", {"time": "1h"})
        assert (answer.status, answer.json["time_limit_seconds"]) == (200, 7200), answer.body
    limits = slurm.run("squeue", "-h", "--array", "-t", "R", "-o", "%l %k").splitlines()
    assert [limit.split()[0] for limit in limits].count("2:02:00") == 2, limits
    for one in (job, *element["job_ids"]):
        server.ask("POST", f"/jobs/{one}/cancel?force=true")
        server.finished(one)


ALONE = ("--ntasks=1", "--nodes=1", "--mem=64M", "--gres=gpu:a100:2", "--exclusive", "--constraint=fast")
GANG = ("--ntasks=2", "--nodes=1-2", "--mem-per-cpu=64M", "--gpus-per-task=a100:1", "--array=3,7%1")


@pytest.mark.parametrize("words", [ALONE, GANG], ids=["alone", "an array of gangs"])
def test_both_ways_make_the_same_job(slurm: TestCluster, tmp_path: Path, words: tuple[str, ...]) -> None:
    slurm.start_rest()
    lock = tmp_path / "submitting.lock"
    rest = RestCommands(lock, slurm.env, api=RestApi(slurm.rest_url, TokenFile(slurm.token_file)))
    common = (
        *("--comment=a|b c", "--output=/tmp/%%o", "--error=/dev/null", "--job-name=same", "--chdir=/"),
        *("--input=/dev/null", "--open-mode=append", "--no-requeue", "--export=NIL", "--propagate=NONE"),
        *("--uid=0", "--gid=0", "--account=root", "--cpus-per-task=2", "--time=7", "--partition=main"),
        "--qos=normal",
    )
    first = slurm.submit("true", "--hold")
    made = []
    for way in (rest, Commands(lock, slurm.env)):
        argv = ["sbatch", "--parsable", f"--dependency=afterany:{first}", *common, *words]
        number = way.submit(argv, "#!/bin/sh\nsleep 60\n")
        shown = slurm.run("scontrol", "show", "job", str(number))
        made.append(sorted(word for word in shown.split() if word.partition("=")[0] not in DIFFERENT))
        way.cancel(number)
    slurm.run("scancel", str(first))
    assert made[0] == made[1]
    assert "Requeue=0" in made[0]


def test_what_needs_a_tool_names_it(server: RunningServer) -> None:
    refused = server.ask("POST", "/nodes/n2/drain", {"reason": "fan"})
    assert refused.status == 409
    assert "scontrol is not installed" in refused.error["message"]


def test_jobs_submitted_while_slurm_is_away_run_once_though_the_server_is_killed(
    server: RunningServer, slurm: TestCluster
) -> None:
    slurm.end("slurmctld")
    try:
        jobs = [server.submit(command=["echo", "once"]) for _ in range(3)]
        wait_for(lambda: "handed to Slurm" in (server.show(jobs[0])["reason"] or ""), "it says so")
        os.kill(server.pid, signal.SIGKILL)
        server.process.wait(120)
    finally:
        slurm.start_controller()
    for mark in (server.home / "attempts").glob("*.rest"):
        os.utime(mark, (0, 0))  # long ago: what it had under way is over
    server.start()
    for job in jobs:
        assert server.finished(job)["state"] == "completed"
        assert server.output(job) == "once\n"


def test_an_expired_token_is_said_and_a_new_one_is_taken_without_a_restart(
    server: RunningServer, slurm: TestCluster
) -> None:
    def doctor() -> str:
        return " ".join(finding["message"] for finding in server.ask("GET", "/doctor").json["findings"])

    good = slurm.token_file.read_text()
    brief = slurm.token(seconds=1)
    try:
        slurm.token_file.write_text(brief)
        wait_for(lambda: "The token for slurmrestd expired on" in doctor(), "the doctor says so", doctor)
        job = server.submit(command=["true"])
        wait_for(lambda: "has expired" in (server.show(job)["reason"] or ""), "a reason", lambda: server.show(job))
    finally:
        slurm.token_file.write_text(good)
    assert server.finished(job)["state"] == "completed"
    assert not [token for token in (good, brief) if token.strip() in server.log]
