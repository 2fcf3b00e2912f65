"""On a Slurm that keeps jobs in control groups: who uses too much memory is told so, and nobody gets out or in."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.container_images import TEST_IMAGE, import_image_into_store, podman_skip_reason
from support.provisioned_slurm import FIRST_NODE, ProvisionedSlurm

pytestmark = needs_root
TOO_MUCH = ["/usr/bin/python3", "-c", "kept = bytearray(200 << 20); print(len(kept))"]
OPEN = """\
import os, sys
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        print(os.path.basename(path), error.errno)
"""
NO_DRIVER, NOT_PERMITTED = 6, 1  # ENXIO: allowed, though there is nothing behind it


@pytest.fixture(scope="module")
def scratch(two_unix_users: list[Person]) -> Iterator[Path]:
    """What their containers keep on the nodes, which are this machine."""
    top = Path(f"/var/tmp/hcg{os.getpid()}")
    top.mkdir()
    top.chmod(0o1777)
    yield top
    shutil.rmtree(top)


@pytest.fixture(scope="module")
def server(
    provisioned_slurm: ProvisionedSlurm, two_unix_users: list[Person], scratch: Path
) -> Iterator[RunningServer]:
    server = RunningServer(f'server.engine = "slurm"\ncontainers.scratch = "{scratch}"\n', provisioned_slurm.env)
    for person in two_unix_users:
        server.ask("GET", "/status", uid=person.uid)
    assert server.ask("POST", "/slurm/apply").status == 200
    yield server
    server.remove()


def is_told_as_out_of_memory(server: RunningServer, person: Person, job: dict[str, Any]) -> None:
    told = "out of memory: it used more than its 100 MiB of memory; request more with --memory"
    errors = server.output(job["id"], person.uid, "stderr")
    assert (job["state"], job["reason"]) == ("failed", told), errors
    seen = wait_for(
        lambda: server.show(job["id"], person.uid)["accounting_usage"], "the accounting", lambda: server.log
    )
    assert seen["out_of_memory"] is True


def test_a_job_over_its_memory_is_told_as_such_in_its_report(server: RunningServer, ann: Person) -> None:
    job = server.run(ann.uid, command=TOO_MUCH, memory="100M")
    is_told_as_out_of_memory(server, ann, job)


def test_of_an_array_only_the_element_over_its_memory_is(server: RunningServer, ann: Person) -> None:
    line = '[ "$HELIOSTAT_ARRAY_INDEX" = 1 ] || exec "$@"'
    body = {"command": ["sh", "-c", line, "sh", *TOO_MUCH], "memory": "100M", "array": "1-2"}
    small, large = server.ask("POST", "/jobs", body, uid=ann.uid).json["job_ids"]
    assert server.finished(small, ann.uid)["state"] == "completed"
    is_told_as_out_of_memory(server, ann, server.finished(large, ann.uid))


def test_a_sandbox_over_the_memory_of_its_job_is_told_as_such(server: RunningServer, ann: Person) -> None:
    job = server.run(ann.uid, command=TOO_MUCH, memory="100M", runtime="bubblewrap")
    is_told_as_out_of_memory(server, ann, job)


@pytest.mark.skipif(podman_skip_reason() is not None, reason=podman_skip_reason() or "")
def test_a_container_has_the_memory_of_its_job_and_no_more(
    server: RunningServer, ann: Person, scratch: Path
) -> None:
    """Of a control group that `runc` makes below that of the job Slurm counts nothing: its script does."""
    folder = scratch / f"heliostat-{ann.uid}"
    folder.mkdir(0o700, exist_ok=True)
    shutil.chown(folder, ann.name)
    import_image_into_store(folder / "images", ann.name)
    writing = "dd if=/dev/zero of=/dev/null count=1 bs="
    enough, too_much = (["/bin/sh", "-c", f"{writing}{size}M"] for size in (20, 200))
    fits = server.run(ann.uid, command=enough, image=TEST_IMAGE, memory="100M")
    assert fits["state"] == "completed", server.output(fits["id"], ann.uid, "stderr")
    killed = server.run(ann.uid, command=too_much, image=TEST_IMAGE, memory="100M")
    told = "out of memory: it used more than its 100 MiB of memory; request more with --memory"
    assert (killed["state"], killed["exit_code"], killed["reason"]) == ("failed", 137, told)
    itself = server.run(ann.uid, command=["/bin/sh", "-c", "kill -KILL $$"], image=TEST_IMAGE, memory="100M")
    assert (itself["state"], itself["exit_code"], itself["reason"]) == ("failed", 137, "exit code 137")


def test_a_job_opens_its_own_gpu_and_no_other(
    provisioned_slurm: ProvisionedSlurm, server: RunningServer, ann: Person
) -> None:
    files = [str(provisioned_slurm.devices / f"gpu{number}") for number in range(2)]
    opening = ["/usr/bin/python3", "-c", OPEN, *files]
    job = server.run(ann.uid, command=opening, gpus=1, gpu_type="a100", memory="100M")
    said = [line.split() for line in server.output(job["id"], ann.uid).splitlines()]
    assert said == [["gpu0", str(NO_DRIVER)], ["gpu1", str(NOT_PERMITTED)]]
    without = server.run(ann.uid, command=opening, memory="100M")
    assert server.output(without["id"], ann.uid).split()[1::2] == [str(NOT_PERMITTED)] * 2


def test_another_person_neither_reads_nor_signals_a_job_nor_enters_its_control_groups(
    server: RunningServer, two_unix_users: list[Person]
) -> None:
    ann, bob = two_unix_users
    script = "echo $$; exec sleep 600"
    hers = server.submit(ann.uid, command=["sh", "-c", script], env={"TOKEN": "swordfish"}, memory="100M")
    wait_for(lambda: server.output(hers, ann.uid), "it to run", lambda: server.show(hers, ann.uid))
    pid = server.output(hers, ann.uid).strip()
    groups = _groups_of(pid)
    assert groups
    commands = [
        f"kill -CONT {pid}",
        f"grep -qz swordfish /proc/{pid}/environ",
        f"cat {server.home}/jobs/{hers}/1.stdout",
        *(f"echo $$ >{group}/{file}" for group in groups for file in ("tasks", "cgroup.procs")),
    ]
    out = [f"echo 0 >{group.parent}/cgroup.procs" for group in groups]
    try:
        assert _could(server, bob, commands) == []
        assert _could(server, ann, commands[:3]) == commands[:3]
        assert _could(server, ann, out) == []
    finally:
        server.ask("POST", f"/jobs/{hers}/cancel", uid=ann.uid)


def _groups_of(pid: str) -> list[Path]:
    """Those that Slurm has made for the job."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    places = [Path(f"/sys/fs/cgroup/{names.removeprefix('name=') or 'unified'}{path}") for _, names, path in lines]
    return [place for place in places if f"slurm_{FIRST_NODE}" in str(place) and place.exists()]


def _could(server: RunningServer, person: Person, commands: list[str]) -> list[str]:
    """Those of the commands that work for them, tried in a job of theirs."""
    script = 'for each; do if sh -c "$each" >/dev/null 2>&1; then echo "$each"; fi; done'
    job = server.run(person.uid, command=["sh", "-c", script, "sh", *commands], memory="100M")
    assert job["state"] == "completed", job
    return server.output(job["id"], person.uid).splitlines()
