"""Jobs in real containers: they end, are ended, limited and survive exactly as plain processes do."""

import hashlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from heliostat.payloads.archive import SESSION_LAUNCHER, program_script
from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.container_images import TEST_IMAGE, import_test_image, podman_skip_reason

pytestmark = [needs_root, pytest.mark.skipif(podman_skip_reason() is not None, reason=podman_skip_reason() or "")]
SECRET = "hunter2-c0ffee"


@dataclass(frozen=True)
class Way:
    """One way to be isolated, and who does it."""

    server: RunningServer
    uid: int | None
    home: Path
    fields: dict[str, Any]

    def submit(self, line: str, **body: object) -> int:
        return self.server.submit(self.uid, command=["/bin/sh", "-c", line], **self.fields, **body)

    def run(self, line: str, **body: object) -> dict[str, Any]:
        return self.server.finished(self.submit(line, **body), self.uid)

    def out(self, job: dict[str, Any] | int, stream: str = "stdout") -> str:
        return self.server.output(job if isinstance(job, int) else job["id"], self.uid, stream)

    def lines(self, line: str, **body: object) -> list[str]:
        job = self.run(line, **body)
        assert job["state"] == "completed", f"{job['reason']}: {self.out(job, 'stderr')}"
        return self.out(job).splitlines()

    def cancel(self, job_id: int) -> dict[str, Any]:
        self.server.ask("POST", f"/jobs/{job_id}/cancel", uid=self.uid)
        return self.server.finished(job_id, self.uid)


@pytest.fixture(scope="module")
def server(two_unix_users: list[Person]) -> Iterator[RunningServer]:
    server = RunningServer('server.simulate_gpus = "2xA100"\nserver.node_name = "here"\nqueue.pids_limit = 200\n')
    import_test_image(server.home, two_unix_users[0].name)
    import_test_image(server.home, "root")
    yield server
    server.remove()


@pytest.fixture(params=["bubblewrap", "podman", "podman as root"])
def way(request: pytest.FixtureRequest, server: RunningServer, ann: Person) -> Way:
    if request.param == "podman as root":
        return Way(server, None, Path("/root"), {"image": TEST_IMAGE, "memory": "256M", "cpus": 1})
    fields = {"image": TEST_IMAGE} if request.param == "podman" else {"runtime": "bubblewrap"}
    return Way(server, ann.uid, ann.home, {**fields, "memory": "256M", "cpus": 1})


def left_of(server: RunningServer, job_id: int) -> list[str]:
    """Processes of the job, wherever they are."""
    found = []
    instance = f"heliostat-{hashlib.sha256(str(server.home).encode()).hexdigest()[:8]}"
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            if (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                continue
            group = (folder / "cgroup").read_text()
        except OSError:
            continue
        if f"{server.home}/jobs/{job_id}/".encode() in words or f"/{instance}/{job_id}.1" in group:
            found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found


def nothing_is_left(server: RunningServer, job_id: int) -> None:
    wait_for(lambda: not left_of(server, job_id), "its processes to be gone", lambda: left_of(server, job_id))
    scratch = server.home / "jobs" / str(job_id) / "1.container"
    wait_for(lambda: not scratch.exists(), "what its container wrote to be gone", lambda: list(scratch.rglob("*")))
    assert str(scratch) not in Path("/proc/mounts").read_text()


def test_it_runs_as_its_user_with_its_exit_code_and_both_streams(way: Way) -> None:
    job = way.run("id -u; echo wrong >&2; exit 7")
    assert (job["state"], job["exit_code"]) == ("failed", 7)
    assert way.out(job) == f"{way.uid or 0}\n"
    assert way.out(job, "stderr") == "wrong\n"
    nothing_is_left(way.server, job["id"])


def test_a_program_of_ours_starts_where_only_the_files_of_the_job_are(way: Way) -> None:
    words = ["service", "/bin/sh", "-c", "echo $PORT"]
    body = {**way.fields, "script": program_script(SESSION_LAUNCHER), "command": words}
    job = way.server.finished(way.server.submit(way.uid, **body), way.uid)
    if "image" in way.fields:  # it has a shell, and no Python
        assert (job["exit_code"], "python3: not found" in way.out(job, "stderr")) == (127, True)
    else:
        assert (job["exit_code"], way.out(job).strip().isdigit()) == (0, True), way.out(job, "stderr")


def test_it_has_no_privilege_and_sees_no_other_process(way: Way) -> None:
    lines = way.lines("grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status; ls -d /proc/[0-9]* | wc -l")
    assert lines[:3] == ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"]
    assert int(lines[3]) < 10


def test_its_variables_reach_it_as_they_are_and_no_command_line(way: Way) -> None:
    strange = {"KEY": SECRET, "LINES_OF": "a\nb 'c' \"$d\"", "LD_PRELOAD": "", "DOCKER_HOST": f"tcp://{SECRET}"}
    job_id = way.submit('echo "$KEY|$LINES_OF|$DOCKER_HOST|$HELIOSTAT_JOB_ID"; sleep 60', env=strange)
    wait_for(lambda: SECRET in way.out(job_id), "its output", lambda: way.out(job_id, "stderr"))
    assert way.out(job_id) == f"{SECRET}|a\nb 'c' \"$d\"|tcp://{SECRET}|{job_id}\n"
    commands = [_read(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
    assert not [words for words in commands if SECRET.encode() in words]
    way.cancel(job_id)
    nothing_is_left(way.server, job_id)


def limits_over(pid: int, v1: tuple[str, str], v2: str) -> set[int]:
    """What is set for the process and for the groups around it. `v1`: the controller, and its file."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    groups = {name: path for line in lines for name in [line.split(":")[1]] for path in [line.split(":", 2)[2]]}
    is_v1 = v1[0] in groups
    top, group, file = Path("/sys/fs/cgroup"), groups[v1[0] if is_v1 else ""], v1[1] if is_v1 else v2
    folders = [Path(group), *Path(group).parents]
    found = [top / (v1[0] if is_v1 else ".") / str(folder).lstrip("/") / file for folder in folders]
    words = [path.read_text().split()[0] for path in found if path.exists()]
    return {int(word) for word in words if word.isdigit()}


def test_what_runs_inside_is_under_the_limits_the_job_asked_for(way: Way) -> None:
    job_id = way.submit("sleep 4711")
    words = b"sleep\0004711\0"

    def inside() -> list[int]:
        return [int(file.parent.name) for file in Path("/proc").glob("[0-9]*/cmdline") if _read(file) == words]

    try:
        for pid in wait_for(inside, "it to run", lambda: way.out(job_id, "stderr")):
            assert min(limits_over(pid, ("cpu", "cpu.cfs_quota_us"), "cpu.max")) == 100_000
            assert min(limits_over(pid, ("memory", "memory.limit_in_bytes"), "memory.max")) == 256 * 2**20
            assert min(limits_over(pid, ("pids", "pids.max"), "pids.max")) == 200
    finally:
        way.cancel(job_id)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def test_out_of_memory_is_told_as_such(way: Way) -> None:
    job = way.run("tail /dev/zero")
    assert job["state"] == "failed"
    assert "memory" in job["reason"]
    nothing_is_left(way.server, job["id"])


def test_a_cancelled_one_may_save_its_work_and_is_told_once(way: Way) -> None:
    line = "trap 'echo told >>notes; sleep 0.5; echo saved; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
    job_id = way.submit(line)
    wait_for(lambda: "ready" in way.out(job_id), "it to run", lambda: way.out(job_id, "stderr"))
    job = way.cancel(job_id)
    assert (job["state"], way.out(job_id)) == ("cancelled", "ready\nsaved\n")
    assert (way.server.home / f"jobs/{job_id}/work/notes").read_text() == "told\n"
    nothing_is_left(way.server, job_id)


def test_a_deaf_one_is_killed_after_its_grace(way: Way) -> None:
    job_id = way.submit(
        "trap '' TERM INT; (sleep 999 &); echo ready; while :; do sleep 0.1; done", grace_seconds=0.5
    )
    wait_for(lambda: "ready" in way.out(job_id), "it to run", lambda: way.out(job_id, "stderr"))
    assert way.cancel(job_id)["state"] == "cancelled"
    nothing_is_left(way.server, job_id)


def test_its_time_limit_holds_and_lets_it_save(way: Way) -> None:
    line = "trap 'echo told; exit 3' TERM; while :; do sleep 0.1; done"
    job = way.run(line, time_limit=2)
    assert (job["state"], way.out(job)) == ("timed_out", "told\n")
    nothing_is_left(way.server, job["id"])


def test_it_outlives_a_server_that_is_killed_and_its_end_is_learned(way: Way) -> None:
    on = way.submit("echo ready; sleep 3; echo done; exit 5")
    over = way.submit("echo ready; sleep 0.5; exit 6")
    for job_id in (on, over):
        wait_for(lambda: "ready" in way.out(job_id), "it to run", lambda: way.out(job_id, "stderr"))  # noqa: B023
    os.kill(way.server.pid, signal.SIGKILL)
    way.server.process.wait()
    time.sleep(0.8)  # one ends while nobody looks
    way.server.start()
    assert way.server.finished(on, way.uid)["exit_code"] == 5
    assert way.server.finished(over, way.uid)["exit_code"] == 6
    assert way.out(on) == "ready\ndone\n"
    nothing_is_left(way.server, on)
    nothing_is_left(way.server, over)
