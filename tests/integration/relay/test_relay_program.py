"""A relay whose other end is a process here instead of one on a node: both ends are the real ones."""

import asyncio
import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from heliostat.engines.exec import ExecCommand
from heliostat.engines.job_variables import DEFAULT_PATH
from heliostat.engines.relay.link import LinkLimits, PortNotListening, PortUnreachable, RelayLink, RelayLost
from heliostat.engines.relay.pool import RelayPool, RelayTiming
from heliostat.errors import Conflict, EngineUnavailable, TooManyRequests
from heliostat.models import Attempt, Job, JobSpec, JobState, Resources
from heliostat.payloads import relay_frames as frames
from heliostat.payloads.archive import RELAY, pack_program

NUMBER = f"77{os.getpid()}"
JOB = Job(
    id=7,
    kind="session",
    name="job",
    state=JobState.RUNNING,
    user="ann",
    unix_user="ann",
    project="lab",
    resources=Resources(),
    spec=JobSpec(command=("true",)),
    submitted_at=datetime(2026, 1, 1, tzinfo=UTC),
    attempt=1,
)
ATTEMPT = Attempt(JOB.attempt_id, JOB, "n1")
LIMITS = LinkLimits()
# Listens, says its port, then answers each connection as its first byte tells.
SERVER = """
import socket, sys, threading
def talk(one):
    kind = one.recv(1)
    if kind == b"e":
        while True:
            data = one.recv(65536)
            if not data: break
            one.sendall(data)
        one.sendall(b"!")
    if kind == b"s":
        while True: one.sendall(b"x" * 65536)
    if kind == b"n":
        threading.Event().wait()
    one.close()
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()
"""


class Client(asyncio.Protocol):
    """Keeps what comes, and notes what is asked of it."""

    def __init__(self) -> None:
        self.data, self.is_full = b"", False
        self.over, self.ended, self.came = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.came.set()

    def eof_received(self) -> None:
        self.ended.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set()

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False


@dataclass
class Inner:
    """A job: a server in it, and how a relay beside it is started."""

    port: int
    folder: Path

    def inside(self, *_: object) -> ExecCommand:
        path = self.folder / f"inside-{os.urandom(4).hex()}"
        path.write_bytes(pack_program(RELAY, "mark", path=DEFAULT_PATH))
        return ExecCommand(
            ("/bin/sh", str(path)), {"SLURM_JOB_ID": NUMBER}, close=lambda: path.unlink(missing_ok=True)
        )


@pytest.fixture(scope="module")
def inner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inner]:
    argv = [sys.executable, "-c", SERVER]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={"SLURM_JOB_ID": NUMBER})
    assert process.stdout is not None
    yield Inner(int(process.stdout.readline()), tmp_path_factory.mktemp("job"))
    process.kill()
    process.communicate()


@contextlib.asynccontextmanager
async def running(inner: Inner, limits: LinkLimits = LIMITS) -> AsyncIterator[RelayLink]:
    inside = inner.inside()
    link = await RelayLink.start(inside, limits)
    inside.close()
    try:
        yield link
    finally:
        link.stop("the test is over")
        await link.wait_closed()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.01)


def run(test: Callable[[], object]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await test()  # type: ignore[misc]

    asyncio.run(limited())


def test_bytes_go_both_ways_and_each_end_hears_the_others_end(inner: Inner) -> None:
    async def test() -> None:
        async with running(inner) as link:
            client = await link.open(inner.port, Client)
            sent = os.urandom(3_000_000)
            client.transport.write(b"e" + sent)
            client.transport.write_eof()
            async with asyncio.timeout(120):
                await client.over.wait()
            assert (client.data == sent + b"!", client.ended.is_set(), link.is_idle) == (True, True, True)

    run(test)


def test_who_does_not_read_holds_up_nobody_else_and_takes_little_memory(inner: Inner) -> None:
    async def test() -> None:
        async with running(inner) as link:
            slow = await link.open(inner.port, Client)
            slow.transport.pause_reading()
            slow.transport.write(b"s")
            other = await link.open(inner.port, Client)
            other.transport.write(b"ehello")
            await until(lambda: other.data == b"hello")
            slow.transport.resume_reading()
            await until(lambda: len(slow.data) > 3 * frames.WINDOW_BYTES)
            slow.transport.abort()
            await until(slow.over.is_set)

    run(test)


def test_who_writes_to_a_server_that_does_not_read_is_asked_to_wait(inner: Inner) -> None:
    async def test() -> None:
        async with running(inner) as link:
            client = await link.open(inner.port, Client)
            client.transport.write(b"n")
            sent = 0
            while not client.is_full:
                client.transport.write(b"x" * 65536)
                sent += 65536
                assert sent < 64 * 2**20
                await asyncio.sleep(0)
            client.transport.abort()
            await until(lambda: link.is_idle)

    run(test)


def test_only_what_the_job_listens_on_is_led_to(inner: Inner) -> None:
    async def test() -> None:
        async with running(inner) as link:
            assert (await link.check(inner.port)).startswith("127.0.0.1 ")
            with socket.create_server(("127.0.0.1", 0)) as ours:
                for ask in (link.check(ours.getsockname()[1]), link.open(ours.getsockname()[1], Client)):
                    with pytest.raises(PortNotListening, match="not part of the job"):
                        await ask
                ours.settimeout(0)
                with pytest.raises(BlockingIOError):
                    ours.accept()  # it was not even tried
            with pytest.raises(PortNotListening, match="no process listens"):
                await link.check(1)

    run(test)


def test_it_leaves_when_nobody_listens_and_stays_while_its_job_is_told_to_end(inner: Inner) -> None:
    async def test() -> None:
        async with running(inner) as link:
            client = await link.open(inner.port, Client)
            os.kill(link._process.pid, 15)
            client.transport.write(b"ehello")
            await until(lambda: client.data == b"hello")
            client.transport.close()
            await link.wait_closed()
            assert link._process.returncode == 0

    run(test)


@pytest.mark.parametrize(
    ("says", "why"),
    [
        ("exit 3", "the relay has ended"),
        ("echo no such node >&2; exit 1", "no such node"),
        ("head -c 100000 /dev/zero", "protocol error: no HELLO"),
    ],
)
def test_one_that_does_not_begin_says_why(says: str, why: str) -> None:
    async def test() -> None:
        with pytest.raises(RelayLost, match=why):
            await RelayLink.start(ExecCommand(("/bin/sh", "-c", says), {"PATH": "/usr/bin:/bin"}))

    run(test)


def test_one_that_does_not_begin_in_time_is_ended() -> None:
    async def test() -> None:
        silent = ExecCommand(("/bin/sh", "-c", "cat >/dev/null"), {"PATH": "/usr/bin:/bin"})
        with pytest.raises(RelayLost, match="did not start in time"):
            await RelayLink.start(silent, LinkLimits(start_seconds=0.2))

    run(test)


HOSTILE = {
    "data beyond the window": frames.encode_frame(frames.OPENED, 1)
    + frames.encode_data_frames(1, b"x" * (frames.WINDOW_BYTES + frames.MAX_FRAME_DATA_BYTES)),
    "credit without end": frames.encode_frame(frames.OPENED, 1) + frames.encode_credit_frame(1, 2**32 - 1),
    "credit for what was never sent": frames.encode_frame(frames.OPENED, 1) + frames.encode_credit_frame(1, 1),
    "empty data": frames.encode_frame(frames.OPENED, 1) + frames.encode_frame(frames.DATA, 1),
    "frames of an unknown connection": frames.encode_frame(frames.EOF, 99) * 2000,
    "data of an unknown connection": frames.encode_data_frames(99, b"x" * 2**20),
    "frames after EOF": frames.encode_frame(frames.OPENED, 1) + frames.encode_frame(frames.EOF, 1) * 2,
    "data before OPENED": frames.encode_data_frames(1, b"x"),
    "kinds that do not exist": b"\xff" * 20,
    "OPENED twice": frames.encode_frame(frames.OPENED, 1) + frames.encode_frame(frames.OPENED, 1),
    "numbers of the wrong size": frames.encode_frame(frames.OPENED, 1)
    + frames.encode_frame(frames.CREDIT, 1, b"x"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_whoever_breaks_the_rules_is_cut_off(what: str, tmp_path: Path) -> None:
    """It is the job's user's own program, and may be anything."""
    (tmp_path / "hello").write_bytes(frames.HELLO)
    (tmp_path / "answer").write_bytes(HOSTILE[what])
    says = f"cd {shlex.quote(str(tmp_path))}; cat hello; head -c 9 >/dev/null; cat answer; cat >/dev/null"

    class Pausing(Client):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.transport.pause_reading()

    async def test() -> None:
        link = await RelayLink.start(ExecCommand(("/bin/sh", "-c", says), {"PATH": "/usr/bin:/bin"}))
        with contextlib.suppress(RelayLost):
            await link.open(4000, Pausing)
        await link.wait_closed()
        assert "protocol error" in link.lost_reason

    run(test)


def test_the_relay_of_an_attempt_is_shared_started_anew_when_it_dies_and_ended_when_nobody_uses_it(
    inner: Inner,
) -> None:
    started: list[int] = []

    def inside(attempt: Attempt) -> ExecCommand:
        started.append(attempt.job.id)
        return inner.inside()

    async def test() -> None:
        relays = RelayPool(inside, RelayTiming(idle_seconds=0.0, idle_check_seconds=3600.0))
        relays.attach()
        clients = await asyncio.gather(*(relays.open(ATTEMPT, inner.port, Client) for _ in range(5)))
        [one] = relays._relays.values()
        assert (len(started), one.link is not None) == (1, True)
        link = one.link
        assert link is not None
        os.kill(link._process.pid, 9)
        for client in clients:
            await until(client.over.is_set)
        assert (await relays.check_async(ATTEMPT, inner.port)).port == inner.port
        assert len(started) == 2
        assert list(inner.folder.iterdir()) == []
        await until(lambda: relays.stop_idle() or not relays._relays)
        seen = await asyncio.to_thread(lambda: relays.check(ATTEMPT, inner.port, again=False))
        assert (seen.host, len(started)) == ("127.0.0.1", 2)
        await asyncio.to_thread(lambda: relays.check(ATTEMPT, inner.port))
        assert len(started) == 3
        await relays.close()

    run(test)


def test_what_goes_wrong_is_said_kindly_and_not_tried_all_the_time(inner: Inner) -> None:
    tries: list[int] = []

    def failing(attempt: Attempt) -> ExecCommand:
        tries.append(attempt.job.id)
        return ExecCommand(("/bin/sh", "-c", "echo srun: the node is away >&2; exit 1"), {"PATH": "/usr/bin:/bin"})

    async def test() -> None:
        relays = RelayPool(failing, RelayTiming(retry_seconds=3600.0))
        for _ in range(2):
            with pytest.raises(EngineUnavailable, match="cannot be reached: srun: the node is away"):
                await relays.check_async(ATTEMPT, 4000)
        good = RelayPool(inner.inside)
        with pytest.raises(Conflict, match="no process listens on port 1 ") as refused:
            await good.open(ATTEMPT, 1, Client)
        assert (refused.value.code, len(tries)) == ("not_listening", 1)
        await good.close()

    run(test)


def test_one_that_keeps_everybody_waiting_takes_few_threads(inner: Inner) -> None:
    async def test() -> None:
        relays = RelayPool(inner.inside)
        relays.attach()
        assert (await relays.check_async(ATTEMPT, inner.port)).port == inner.port
        link = relays._relays[ATTEMPT.id].link
        assert link is not None
        os.killpg(link._process.pid, signal.SIGSTOP)
        looks = [asyncio.create_task(asyncio.to_thread(relays.check, ATTEMPT, inner.port)) for _ in range(3)]
        await until(lambda: relays._checks.total() == 3)
        with pytest.raises(TooManyRequests):
            await asyncio.to_thread(relays.check, ATTEMPT, inner.port)
        os.killpg(link._process.pid, signal.SIGCONT)
        assert [one.port for one in await asyncio.gather(*looks)] == [inner.port] * 3
        assert relays._checks.total() == 0
        await relays.close()

    run(test)


def test_too_many_connections_are_refused(inner: Inner) -> None:
    async def test() -> None:
        async with running(inner, LinkLimits(max_connections=1)) as link:
            await link.open(inner.port, Client)
            with pytest.raises(PortUnreachable, match="too many"):
                await link.open(inner.port, Client)

    run(test)
