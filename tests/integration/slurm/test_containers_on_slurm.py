"""Jobs in real containers on a real Slurm: they end, are ended and clean up as on one machine."""

import os
import shutil
import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from heliostat.runtimes.image_stores import image_lock_path
from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.container_images import TEST_IMAGE, import_image_into_store, podman_skip_reason
from support.job_exec import exec_in_job
from support.slurm_cluster import SlurmTestCluster
from support.slurm_job_ports import JobPort
from support.waiting import wait_until

pytestmark = [needs_root, pytest.mark.skipif(podman_skip_reason() is not None, reason=podman_skip_reason() or "")]
SECRET = "hunter2-c0ffee"


@dataclass(frozen=True)
class Way:
    """One way to be isolated."""

    server: RunningServer
    person: Person
    scratch: Path
    fields: dict[str, Any]

    def submit(self, line: str, **body: object) -> int:
        return self.server.submit(self.person.uid, command=["/bin/sh", "-c", line], **{**self.fields, **body})

    def run(self, line: str, **body: object) -> dict[str, Any]:
        return self.server.finished(self.submit(line, **body), self.person.uid)

    def out(self, job: dict[str, Any] | int, stream: str = "stdout") -> str:
        return self.server.output(job if isinstance(job, int) else job["id"], self.person.uid, stream)

    def lines(self, line: str, **body: object) -> list[str]:
        job = self.run(line, **body)
        assert job["state"] == "completed", f"{job['reason']}: {self.out(job, 'stderr')}"
        return self.out(job).splitlines()

    def begun(self, line: str, **body: object) -> int:
        """`line` says when it is ready."""
        job = self.submit(line, **body)
        wait_for(lambda: "ready" in self.out(job), "it to run", lambda: self.told(job))
        self.is_known_to_run(job)
        return job

    def is_known_to_run(self, job: int) -> None:
        wait_for(lambda: self.server.show(job, self.person.uid)["state"] == "running", "it to be known to run")

    def told(self, job: int) -> object:
        return self.out(job, "stderr"), self.server.show(job, self.person.uid)["reason"]

    def cancel(self, job_id: int) -> dict[str, Any]:
        self.server.ask("POST", f"/jobs/{job_id}/cancel", uid=self.person.uid)
        return self.server.finished(job_id, self.person.uid)

    def left(self) -> list[str]:
        """Processes of theirs, and what their containers have left on the node."""
        found = [str(path) for path in self.scratch.glob("*") if path.name != "images"]
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if folder.stat().st_uid == self.person.uid and words:
                    found.append(words[:300])
            except OSError:
                continue
        return found

    def nothing_is_left(self) -> None:
        wait_for(lambda: not self.left(), "nothing to be left", self.left)


@pytest.fixture(scope="module")
def scratch(two_unix_users: list[Person]) -> Iterator[Path]:
    """What people's containers keep on the nodes, which are all this machine."""
    ann = two_unix_users[0]
    top = Path(f"/var/tmp/ht{os.getpid()}")
    top.mkdir()
    top.chmod(0o1777)
    own = top / f"heliostat-{ann.uid}"
    own.mkdir(0o700)
    shutil.chown(own, ann.name)
    import_image_into_store(own / "images", ann.name)
    yield own
    shutil.rmtree(top)


def settings_of(scratch: Path) -> str:
    return f'server.engine = "slurm"\ncontainers.scratch = "{scratch.parent}"\n'


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster, two_unix_users: list[Person], scratch: Path) -> Iterator[RunningServer]:
    for person in two_unix_users:
        slurm.add_user(person.name)
    server = RunningServer(settings_of(scratch), {**os.environ, **slurm.env})
    yield server
    server.remove()


def way_of(name: str, server: RunningServer, person: Person, scratch: Path) -> Way:
    fields = {"image": TEST_IMAGE} if name == "podman" else {"runtime": "bubblewrap"}
    return Way(server, person, scratch, {**fields, "memory": "256M", "cpus": 1})


@pytest.fixture(params=["bubblewrap", "podman"])
def way(request: pytest.FixtureRequest, server: RunningServer, ann: Person, scratch: Path) -> Iterator[Way]:
    way = way_of(request.param, server, ann, scratch)
    yield way
    way.nothing_is_left()


def test_it_runs_as_its_user_with_its_exit_code_and_both_streams(way: Way) -> None:
    job = way.run("id -u; pwd; echo wrong >&2; exit 7")
    assert (job["state"], job["exit_code"]) == ("failed", 7), way.out(job, "stderr")
    assert way.out(job) == f"{way.person.uid}\n{way.server.home}/jobs/{job['id']}/work\n"
    assert way.out(job, "stderr") == "wrong\n"


def test_it_has_no_privilege_and_sees_no_other_process(way: Way) -> None:
    lines = way.lines("grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status; ls -d /proc/[0-9]* | wc -l")
    assert lines[:3] == ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"]
    assert int(lines[3]) < 10


def test_its_variables_reach_it_as_they_are_and_no_command_line(way: Way) -> None:
    strange = {"KEY": SECRET, "LINES_OF": "a\nb 'c' \"$d\"", "LD_PRELOAD": "", "DOCKER_HOST": f"tcp://{SECRET}"}
    strange |= {"heliostat_folder": "/", "heliostat_sealed": "x"}
    known = "$HELIOSTAT_JOB_ID|$HELIOSTAT_NODE|$CUDA_VISIBLE_DEVICES"
    line = f'echo "$KEY|$LINES_OF|$DOCKER_HOST|$heliostat_sealed|{known}"'
    job_id = way.begun(f"echo ready; {line}; sleep 60", env=strange)
    wait_for(lambda: way.out(job_id).count("\n") == 3, "its output", lambda: way.told(job_id))
    node = way.server.show(job_id, way.person.uid)["node"]
    assert way.out(job_id) == f"ready\n{SECRET}|a\nb 'c' \"$d\"|tcp://{SECRET}|x|{job_id}|{node}|\n"
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [words for words in commands if SECRET.encode() in words]
    way.cancel(job_id)


def test_a_cancelled_one_may_save_its_work_and_is_told_once(way: Way) -> None:
    line = "trap 'echo told >>notes; sleep 0.5; echo saved; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
    job_id = way.begun(line)
    job = way.cancel(job_id)
    assert (job["state"], way.out(job_id)) == ("cancelled", "ready\nsaved\n"), way.told(job_id)
    assert (way.server.home / f"jobs/{job_id}/work/notes").read_text() == "told\n"


def test_a_deaf_one_is_killed_after_its_grace(way: Way) -> None:
    line = "trap '' TERM INT; (sleep 999 &); touch /tmp/x; echo ready; while :; do sleep 0.1; done"
    assert way.cancel(way.begun(line, grace_seconds=0.5))["state"] == "cancelled"


def test_its_time_limit_holds_and_lets_it_save(way: Way) -> None:
    job = way.run("trap 'echo told; exit 3' TERM; while :; do sleep 0.1; done", time_limit=3)
    assert (job["state"], way.out(job)) == ("timed_out", "told\n")


def test_it_outlives_a_server_that_is_killed_and_its_end_is_learned(way: Way) -> None:
    job_id = way.begun("echo ready; while [ ! -e go ]; do sleep 0.1; done; echo done; exit 5")
    os.kill(way.server.pid, signal.SIGKILL)
    way.server.process.wait()
    (way.server.home / f"jobs/{job_id}/work/go").touch()
    way.server.start()
    job = way.server.finished(job_id, way.person.uid)
    assert (job["exit_code"], way.out(job_id)) == (5, "ready\ndone\n")


def test_each_element_of_an_array_has_its_own_folder_variables_and_script(way: Way) -> None:
    said = "$HELIOSTAT_ARRAY_INDEX $HELIOSTAT_JOB_ID $(pwd) $1 $HELIOSTAT_CHECKPOINT_DIR"
    script = f'#!/bin/sh\necho "{said}"\ntouch "$HELIOSTAT_CHECKPOINT_DIR/x"\n'
    body = {**way.fields, "script": script, "command": ["a 'b' $4"], "array": "3-4"}
    answer = way.server.ask("POST", "/jobs", body, uid=way.person.uid)
    jobs = answer.json["job_ids"]
    for index, job in enumerate(jobs, start=3):
        assert way.server.finished(job, way.person.uid)["state"] == "completed", way.told(job)
        folder = way.server.home / "jobs" / str(job)
        assert way.out(job) == f"{index} {job} {folder}/work a 'b' $4 {folder}/checkpoints\n"
        assert (folder / "checkpoints/x").exists()


def test_each_task_of_a_gang_has_a_container_of_its_own(way: Way) -> None:
    line = "echo $RANK of $WORLD_SIZE on $HELIOSTAT_NODE at $MASTER_ADDR:$MASTER_PORT $KEY"
    job = way.run(line, tasks=3, layout="spread", env={"KEY": SECRET})
    assert job["state"] == "completed", way.told(job["id"])
    words = [said.split() for said in sorted(way.out(job).splitlines())]
    assert [(said[0], said[2], said[7]) for said in words] == [(str(rank), "3", SECRET) for rank in range(3)]
    assert len({said[4] for said in words}) == 3
    assert len({said[6] for said in words}) == 1


def test_the_first_failure_of_a_gang_ends_it(way: Way) -> None:
    job = way.run('[ "$RANK" = 1 ] && { sleep 1; exit 9; }; sleep 600', tasks=2)
    assert (job["state"], job["exit_code"]) == ("failed", 9), way.told(job["id"])


def test_a_cancelled_gang_may_save_its_work(way: Way) -> None:
    line = "trap 'echo saved; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
    job = way.submit(line, tasks=2, layout="spread")
    wait_for(lambda: way.out(job).count("ready") == 2, "both to run", lambda: way.told(job))
    way.is_known_to_run(job)
    assert way.cancel(job)["state"] == "cancelled"
    assert way.out(job).count("saved") == 2


def test_what_a_kill_left_on_the_node_is_removed_by_the_next(way: Way) -> None:
    """As Slurm does that sees all processes of a job: not even those that look after it are left."""
    job = way.begun("touch /tmp/x; echo ready; while :; do sleep 0.1; done")
    folder = next(way.scratch.glob("*.lock")).with_suffix("")
    keep_killing(way)
    way.server.finished(job, way.person.uid)
    assert folder.exists()
    way.lines("echo next")
    assert not folder.exists()


def keep_killing(way: Way) -> None:
    """Everything of theirs, guards first."""
    for pattern in ("guard", ""):
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if (
                    folder.stat().st_uid == way.person.uid
                    and pattern.encode() in (folder / "cmdline").read_bytes()
                ):
                    os.kill(int(folder.name), signal.SIGKILL)
            except OSError:
                continue


def test_a_command_enters_the_container_and_ends_with_whoever_asked(way: Way) -> None:
    uid, env = way.person.uid, {"TOKEN": "sword 'fish'\n$(id)", "LD_PRELOAD": ""}
    job = way.begun("touch /tmp/here; echo ready; while :; do sleep 0.1; done", env=env)
    line = 'ls /tmp/here; id -u; pwd; echo "$TOKEN|$HELIOSTAT_JOB_ID|$HELIOSTAT_NODE"; cat; echo oops >&2; exit 7'
    ran = exec_in_job(way.server, job, "/bin/sh", "-c", line, uid=uid, stdin=b"one")
    node = way.server.show(job, uid)["node"]
    folder = f"{way.server.home}/jobs/{job}/work"
    assert ran.stdout == f"/tmp/here\n{uid}\n{folder}\n{env['TOKEN']}|{job}|{node}\none", ran.stderr
    assert (ran.exit_code, "oops" in ran.stderr.splitlines()) == (7, True)  # srun has a word to say too
    try:
        with way.server.raw_connection(uid) as connection:
            body = f'{{"command": ["/bin/sh", "-c", "sleep 98{job}; true"]}}\n'.encode()
            head = f"POST /api/v1/jobs/{job}/exec HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            wait_for(lambda: f"sleep 98{job} " in way.left(), "the command to run", way.left)
        wait_for(lambda: f"sleep 98{job} " not in way.left(), "the command to end", way.left)
        assert way.server.show(job, uid)["state"] == "running"
    finally:  # or all tests that follow would find it
        way.cancel(job)


def test_a_command_enters_a_task_of_a_gang(way: Way) -> None:
    line = "echo ready; while :; do sleep 0.1; done"
    job = way.begun(line, tasks=2, layout="spread")
    wait_for(lambda: way.out(job).count("ready") == 2, "both to run", lambda: way.told(job))
    ran = exec_in_job(way.server, job, "/bin/sh", "-c", "echo $RANK of $WORLD_SIZE", uid=way.person.uid)
    assert ran.stdout == "0 of 2\n", ran.stderr
    way.cancel(job)


def test_no_gpu_is_left_out_in_silence(way: Way) -> None:
    job = way.run("true", gpus=1)
    assert (job["state"], job["exit_code"]) == ("failed", 126)
    assert "nvidia-smi" in way.out(job, "stderr")


def test_an_image_that_does_not_come_is_told_as_that(server: RunningServer, ann: Person) -> None:
    image = "127.0.0.1:1/lab/x:1"
    job = server.run(ann.uid, command=["true"], image=image, memory="64M", cpus=1)
    assert job["state"] == "failed"
    assert job["reason"].startswith(f"{image} cannot be fetched: the registry does not respond"), job


def test_what_could_not_be_kept_within_slurms_limits_is_refused_at_once(server: RunningServer) -> None:
    answer = server.ask("POST", "/jobs", {"command": ["true"], "image": TEST_IMAGE})
    assert (answer.status, "outside of Slurm's limits" in answer.error["message"]) == (422, True)


def test_a_place_that_somebody_else_has_taken_is_refused(
    server: RunningServer, bob: Person, scratch: Path
) -> None:
    taken = scratch.parent / f"heliostat-{bob.uid}"
    taken.symlink_to("/tmp")
    try:
        job = server.run(bob.uid, command=["true"], runtime="bubblewrap", memory="64M", cpus=1)
        assert (job["exit_code"], "is not yours" in server.output(job["id"], bob.uid, "stderr")) == (126, True)
    finally:
        taken.unlink()


def test_a_server_in_it_is_reached_through_the_proxy_unless_it_has_a_network_of_its_own(way: Way) -> None:
    port, uid = _unused_port(), way.person.uid
    serve = f"echo hello >index.html; busybox httpd -p 127.0.0.1:{port} && echo ready; exec sleep 600"
    job = way.begun(serve)
    got = JobPort.with_new_key(way.server, (job, port), uid).get("index.html")
    assert (got.status, got.body) == (200, b"hello\n")
    apart = way.begun("echo ready; exec sleep 600", network="none")
    answer = way.server.ask("GET", f"/jobs/{apart}/ports/{port}", uid=uid)
    assert (answer.status, "its own network" in answer.error["message"]) == (409, True), answer.body
    for one in (job, apart):
        way.cancel(one)


def _unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def test_an_image_is_built_on_a_node_used_on_another_and_noted(
    server: RunningServer, ann: Person, scratch: Path
) -> None:
    body = {"name": "mine", "containerfile": f"FROM {TEST_IMAGE}\nRUN echo made > /made\n"}
    made = server.ask("POST", "/images", body, uid=ann.uid).json
    wait_until(lambda: server.show(made["build_job"], ann.uid)["ended_at"], "the image is built", 150)
    build = server.show(made["build_job"], ann.uid)
    assert build["state"] == "completed", (build["reason"], server.output(build["id"], ann.uid))
    way = way_of("podman", server, ann, scratch)
    job = way.run("cat /made", image="mine")
    assert way.out(job) == "made\n", way.told(job["id"])
    digest = server.ask("GET", "/images/mine", uid=ann.uid).json["image_digest"]
    wait_for(lambda: _noted(server, ann, job["id"]) == digest, "what its image is to be noted")
    way.nothing_is_left()


def _noted(server: RunningServer, person: Person, job_id: int) -> str | None:
    machines = server.ask("GET", f"/jobs/{job_id}/record", uid=person.uid).json["machines"]
    return machines[-1]["image_digest"] if machines else None


def test_images_nobody_has_used_for_long_go_beside_the_next_container(way: Way) -> None:
    if "image" not in way.fields:
        pytest.skip("needs no image")
    old, store = "localhost/old:latest", way.scratch / "images"
    import_image_into_store(store, way.person.name, old, "an-old-image")
    swept, file = store / "swept", Path(image_lock_path(str(store), old))
    swept.unlink(missing_ok=True)  # or it was looked at just now
    file.parent.mkdir(exist_ok=True)
    file.touch()
    for path in (file.parent, file):
        shutil.chown(path, way.person.name)
    os.utime(file, (0, 0))
    job = way.begun("echo ready; while [ ! -e go ]; do sleep 0.1; done; ls /etc")
    wait_for(lambda: swept.exists() and old in swept.read_text(), "it to be removed", lambda: way.told(job))
    (way.server.home / f"jobs/{job}/work/go").touch()
    assert way.server.finished(job, way.person.uid)["state"] == "completed"
    assert "this-is-the-image" in way.out(job)
    known = (store / "overlay-images/images.json").read_text()
    assert (old in known, TEST_IMAGE in known) == (False, True)
    way.nothing_is_left()
