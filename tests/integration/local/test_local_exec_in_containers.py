"""A command inside a job that runs in a container of this machine: in the container, as whoever runs there."""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.container_images import TEST_IMAGE, import_test_image, podman_skip_reason
from support.job_exec import exec_in_job

pytestmark = [needs_root, pytest.mark.skipif(podman_skip_reason() is not None, reason=podman_skip_reason() or "")]
STRANGE = {"TOKEN": "sword 'fish'\n$(id)", "LD_PRELOAD": "", "DOCKER_HOST": "tcp://x"}


@pytest.fixture(scope="module")
def server(two_unix_users: list[Person]) -> Iterator[RunningServer]:
    server = RunningServer('server.node_name = "here"\n')
    import_test_image(server.home, two_unix_users[0].name)
    import_test_image(server.home, "root")
    yield server
    server.remove()


@pytest.fixture(params=["bubblewrap", "podman", "podman as root"], scope="module")
def contained(
    request: pytest.FixtureRequest, server: RunningServer, two_unix_users: list[Person]
) -> Iterator[tuple[int, int | None]]:
    fields: dict[str, Any] = {"runtime": "bubblewrap"} if request.param == "bubblewrap" else {"image": TEST_IMAGE}
    uid = None if request.param == "podman as root" else two_unix_users[0].uid
    line = "touch /tmp/here; echo ready; while :; do sleep 0.2; done"
    job = server.submit(uid, command=["/bin/sh", "-c", line], env=STRANGE, memory="256M", cpus=1, **fields)
    wait_for(lambda: "ready" in server.output(job, uid), "it to run", lambda: server.output(job, uid, "stderr"))
    wait_for(lambda: server.show(job, uid)["state"] == "running", "it to be known to run")
    yield job, uid
    server.ask("POST", f"/jobs/{job}/cancel", {"force": True}, uid=uid)


def test_it_is_in_the_container_with_its_user_variables_and_folder(
    server: RunningServer, contained: tuple[int, int | None]
) -> None:
    job, uid = contained
    line = 'ls /tmp/here; id -u; pwd; echo "$TOKEN|$DOCKER_HOST|$HELIOSTAT_JOB_ID"; grep CapEff /proc/self/status'
    ran = exec_in_job(server, job, "/bin/sh", "-c", line, uid=uid)
    assert ran.exit_code == 0, ran
    here, user, folder, *variables, capabilities = ran.stdout.splitlines()
    assert (here, user, folder) == ("/tmp/here", str(uid or 0), f"{server.home}/jobs/{job}/work"), ran.stderr
    assert "\n".join(variables) == f"{STRANGE['TOKEN']}|tcp://x|{job}"
    assert int(capabilities.split()[1], 16) == 0


def test_it_has_no_way_to_more_privileges(server: RunningServer, contained: tuple[int, int | None]) -> None:
    job, uid = contained
    ran = exec_in_job(server, job, "/bin/sh", "-c", "grep NoNewPrivs /proc/self/status", uid=uid)
    assert ran.stdout == "NoNewPrivs:\t1\n", ran.stderr


def test_streams_words_and_the_exit_code_are_the_commands(
    server: RunningServer, contained: tuple[int, int | None]
) -> None:
    job, uid = contained
    ran = exec_in_job(server, job, "/bin/sh", "-c", "cat; echo oops >&2; exit 7", uid=uid, stdin=b"one\ntwo")
    assert (ran.exit_code, ran.stdout, ran.stderr) == (7, "one\ntwo", "oops\n")
    words = ["a b", "$(id)", "'", '"', "", "ä", "--", "-e"]
    said = exec_in_job(server, job, "/bin/sh", "-c", 'for word; do echo "$word|"; done', "sh", *words, uid=uid)
    assert said.stdout == "".join(f"{word}|\n" for word in words), said.stderr
    assert exec_in_job(server, job, "no-such-command", uid=uid).exit_code == 127


def test_it_ends_when_nobody_listens_and_the_job_goes_on(
    server: RunningServer, contained: tuple[int, int | None]
) -> None:
    job, uid = contained
    marker = f"sleep 86{job}7"

    def running() -> list[str]:
        return [words for words in commands(marker).values() if "podman" not in words and "exec" not in words]

    with server.raw_connection(uid) as connection:
        ask_for(connection, job, marker)
        wait_for(running, "the command to run")
    wait_for(lambda: not running(), "the command to end", running)
    assert server.show(job, uid)["state"] == "running"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_when_the_tool_that_started_it_is_ended_first(
    server: RunningServer, contained: tuple[int, int | None], number: int
) -> None:
    """A signal to all processes of a step may reach podman before the script that waits for it."""
    job, uid = contained
    marker = f"sleep 87{job}{number}"

    def running() -> list[str]:
        return [words for words in commands(marker).values() if "podman" not in words and "exec" not in words]

    def tools() -> list[int]:
        return [pid for pid, words in commands(f"{marker}; true").items() if words.startswith("podman ")]

    with server.raw_connection(uid) as connection:
        ask_for(connection, job, marker)
        wait_for(running, "the command to run")
        if not tools():
            pytest.skip("bubblewrap becomes the command")
        for pid in tools():
            os.kill(pid, number)
        wait_for(lambda: not running(), "the command to end", running)
    assert server.show(job, uid)["state"] == "running"


def commands(ending: str) -> dict[int, str]:
    """The processes of this machine whose words end so."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if words.endswith(ending):
                found[int(folder.name)] = words
    return found


def ask_for(connection: socket.socket, job: int, line: str) -> None:
    body = f'{{"command": ["/bin/sh", "-c", "{line}; true"]}}\n'.encode()
    head = f"POST /api/v1/jobs/{job}/exec HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
