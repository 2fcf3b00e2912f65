"""Containers of a server that is not root: one user's own, found by their mark where there are no cgroups."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root, python_for
from support.container_images import TEST_IMAGE, import_test_image, podman_skip_reason
from support.waiting import wait_until

pytestmark = [needs_root, pytest.mark.skipif(podman_skip_reason() is not None, reason=podman_skip_reason() or "")]


@pytest.fixture(scope="module")
def server(two_unix_users: list[Person]) -> Iterator[RunningServer]:
    python, environment = python_for(two_unix_users[0])
    server = RunningServer('server.node_name = "here"\n', environment, two_unix_users[0].name, python)
    import_test_image(server.home, two_unix_users[0].name)
    yield server
    server.remove()


def of_her(server: RunningServer, person: Person) -> list[str]:
    """What runs as her, but for the server."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_hers = folder.stat().st_uid == person.uid
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if is_hers and words and "heliostat.server" not in words:
            found.append(words)
    return found


@pytest.mark.parametrize("how", [{"image": TEST_IMAGE}, {"runtime": "bubblewrap"}], ids=["podman", "bubblewrap"])
def test_it_runs_and_nothing_of_it_is_left(server: RunningServer, ann: Person, how: dict[str, str]) -> None:
    body = {"command": ["/bin/sh", "-c", "id -u; exit 7"], **how}
    job = server.run(ann.uid, **body)
    assert (job["exit_code"], server.output(job["id"], ann.uid)) == (7, f"{ann.uid}\n"), job["reason"]
    wait_for(lambda: not of_her(server, ann), "its processes to go", lambda: of_her(server, ann))


@pytest.mark.parametrize("how", [{"image": TEST_IMAGE}, {"runtime": "bubblewrap"}], ids=["podman", "bubblewrap"])
def test_a_cancelled_one_may_save_its_work(server: RunningServer, ann: Person, how: dict[str, str]) -> None:
    line = "trap 'sleep 0.3; echo saved; exit 3' TERM; echo ready; touch /tmp/x; while :; do sleep 0.1; done"
    job_id = server.submit(ann.uid, command=["/bin/sh", "-c", line], **how)
    wait_for(lambda: "ready" in server.output(job_id, ann.uid), "it to run")
    server.ask("POST", f"/jobs/{job_id}/cancel", uid=ann.uid)
    assert server.finished(job_id, ann.uid)["state"] == "cancelled"
    assert server.output(job_id, ann.uid) == "ready\nsaved\n"
    wait_for(lambda: not of_her(server, ann), "its processes to go", lambda: of_her(server, ann))


def test_a_killed_one_leaves_neither_process_nor_file(server: RunningServer, ann: Person) -> None:
    line = "trap '' TERM; touch /tmp/x /home/y; echo ready; while :; do sleep 0.1; done"
    job_id = server.submit(ann.uid, command=["/bin/sh", "-c", line], image=TEST_IMAGE, grace_seconds=0.2)
    wait_for(lambda: "ready" in server.output(job_id, ann.uid), "it to run")
    server.ask("POST", f"/jobs/{job_id}/cancel", uid=ann.uid)
    assert server.finished(job_id, ann.uid)["state"] == "cancelled"
    wait_for(lambda: not of_her(server, ann), "its processes to go", lambda: of_her(server, ann))
    scratch = server.home / f"jobs/{job_id}/1.container"
    wait_for(lambda: not scratch.exists(), "its files to go", lambda: list(scratch.rglob("*"))[:20])


def test_an_image_is_built_and_used_and_nothing_of_it_is_left(server: RunningServer, ann: Person) -> None:
    text = f"FROM {TEST_IMAGE}\nRUN mkdir /d; echo made > /d/made; busybox chown 5:5 /d/made\n"
    made = server.ask("POST", "/images", {"name": "mine", "containerfile": text}, uid=ann.uid).json
    wait_until(lambda: server.show(made["build_job"], ann.uid)["ended_at"], "the image is built", 150)
    build = server.show(made["build_job"], ann.uid)
    assert build["state"] == "completed", server.output(build["id"], ann.uid)
    job = server.run(ann.uid, command=["cat", "/d/made"], image="mine")
    assert server.output(job["id"], ann.uid) == "made\n", job["reason"]
    wait_for(lambda: not of_her(server, ann), "its processes to go", lambda: of_her(server, ann))
    scratch = server.home / f"jobs/{build['id']}/1.container"
    wait_for(lambda: not scratch.exists(), "its files to go", lambda: list(scratch.rglob("*"))[:20])
