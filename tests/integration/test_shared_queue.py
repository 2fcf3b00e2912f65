"""The queue at work on a real machine: who makes room for whom, and what becomes of them."""

import time
from collections.abc import Iterator

import pytest

from integration.running_server import RunningServer, wait_for

_SAVES_AND_GOES_ON = """
echo attempt $HELIOSTAT_ATTEMPT found $(cat $HELIOSTAT_CHECKPOINT_DIR/state 2>/dev/null || echo nothing)
save() { echo saved-by-$HELIOSTAT_ATTEMPT > $HELIOSTAT_CHECKPOINT_DIR/state; touch $HELIOSTAT_CHECKPOINT_FILE; }
trap 'save; exit' USR1
[ $HELIOSTAT_ATTEMPT = 1 ] || exit 0
while :; do sleep 0.05; done
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """Two made-up GPUs."""
    server = RunningServer(
        'server.simulate_gpus = "2xA100"\nserver.node_name = "here"\nqueue.assumed_limit_hours = 24.0\n'
    )
    yield server
    server.remove()


def test_a_scavenger_makes_room_saves_its_work_and_goes_on_where_it_was(server: RunningServer) -> None:
    victim = server.submit(
        command=_SAVES_AND_GOES_ON,
        gpus=2,
        cpus=1,
        memory=100,
        priority_class="scavenger",
        preempt_signal="USR1",
        grace_seconds=20,
        time_limit=3600,
    )
    wait_for(lambda: "found nothing" in server.output(victim), "the scavenger to run")
    other = server.submit(command="sleep 0.3; echo mine", gpus=2, cpus=1, memory=100, time_limit=600)
    assert server.finished(other)["state"] == "completed"
    assert server.finished(victim)["state"] == "completed"
    shown = server.show(victim)
    assert shown["preemptions"] == 1
    assert [attempt["state"] for attempt in shown["attempts"]] == ["preempted", "completed"]
    assert "attempt 2 found saved-by-1" in server.ask("GET", f"/jobs/{victim}/logs?attempt=2").body.decode()
    kinds = [event["kind"] for event in server.ask("GET", f"/events?job_id={victim}").json["items"]]
    assert [kind for kind in kinds if "preempt" in kind] == ["preempt_requested", "preempted"]


def test_overtime_ends_when_somebody_waits_for_what_it_holds(server: RunningServer) -> None:
    over = server.submit(
        command="exec sleep 1000", gpus=2, cpus=1, memory=100, time_limit=1, overtime=True, grace_seconds=1
    )
    wait_for(lambda: server.show(over)["state"] == "running", "it runs")
    limit_is_over = time.monotonic() + 1.5
    wait_for(lambda: time.monotonic() > limit_is_over, "its limit to be over")
    assert server.show(over)["state"] == "running"
    other = server.submit(command="echo mine", gpus=1, cpus=1, memory=100, time_limit=600)
    assert server.finished(other)["state"] == "completed"
    ended = server.finished(over)
    assert ended["state"] == "timed_out"
    assert f"job {other}" in ended["reason"]


def test_a_gang_runs_all_its_tasks_at_once_each_with_its_own_gpu(server: RunningServer) -> None:
    job = server.submit(
        command="echo $HELIOSTAT_TASK of $WORLD_SIZE on $CUDA_VISIBLE_DEVICES",
        gpus=1,
        tasks=2,
        cpus=1,
        memory=100,
        time_limit=60,
    )
    assert server.finished(job)["state"] == "completed"
    lines = sorted(server.output(job).splitlines())
    assert [line.split(" on ")[0] for line in lines] == ["0 of 2", "1 of 2"]
    assert len({line.split(" on ")[1] for line in lines}) == 2


def test_a_waiting_job_says_why(server: RunningServer) -> None:
    holder = server.submit(command="sleep 1000", gpus=2, cpus=1, memory=100, time_limit=3600)
    wait_for(lambda: server.show(holder)["state"] == "running", "it runs")
    waiting = server.submit(command="true", gpus=2, cpus=1, memory=100, time_limit=60)
    wait_for(lambda: "needs 2 GPUs on one node" in server.show(waiting)["reason"], "a reason")
    server.ask("POST", f"/jobs/{holder}/cancel", {})
    assert server.finished(waiting)["state"] == "completed"
