"""A relay is its user's own program: one that lies or does not read takes little of the server."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from heliostat.engines.exec import ExecCommand
from heliostat.engines.relay.link import LinkLimits, RelayLink
from heliostat.engines.relay.pool import RelayPool
from integration.relay.test_relay_program import ATTEMPT, LIMITS, Client, run, until

# Agrees to all it is asked for as often as it is told; then hears nothing more, or not before the pipe is opened.
AGREEING = """
import os, sys, threading
def all_of(size):
    data = b""
    while len(data) < size:
        data += os.read(0, size - len(data))
    return data
os.write(1, b"\\0heliostat relay 1\\n")
for _ in range(int(sys.argv[1])):
    number = all_of(9)[1:5]
    said = sys.argv[2].encode()
    os.write(1, b"\\3" + number + len(said).to_bytes(2, "big") + said)
if len(sys.argv) > 3:
    os.close(os.open(sys.argv[3], os.O_RDONLY))
    while os.read(0, 65536): pass
threading.Event().wait()
"""


def agreeing(times: int, says: str = "", *more: str) -> ExecCommand:
    return ExecCommand((sys.executable, "-c", AGREEING, str(times), says, *more), {})


@contextlib.asynccontextmanager
async def started(inside: ExecCommand, limits: LinkLimits = LIMITS) -> AsyncIterator[RelayLink]:
    link = await RelayLink.start(inside, limits)
    try:
        yield link
    finally:
        link._process.kill()
        link.stop("the test is over")
        await link.wait_closed()


async def fill(client: Client) -> None:
    for _ in range(100):
        if client.is_full:
            return
        client.transport.write(b"x" * 65536)
    raise AssertionError("nobody asked it to wait")


def test_connections_of_one_that_does_not_read_wait_until_it_does(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    async def test() -> None:
        async with started(agreeing(40, "", str(pipe))) as link:
            clients = [await link.open(4000, Client) for _ in range(40)]
            for client in clients:
                await fill(client)
            assert link._transport.get_write_buffer_size() < 2 * 2**20
            waiting = sum(client.transport.get_write_buffer_size() for client in clients)
            await asyncio.to_thread(lambda: pipe.open("w").close())
            await until(lambda: link._transport.get_write_buffer_size() == 0)
            assert sum(client.transport.get_write_buffer_size() for client in clients) < waiting

    run(test)


def test_one_that_does_not_read_what_it_must_is_ended() -> None:
    async def test() -> None:
        async with started(agreeing(1), LinkLimits(max_unsent_bytes=1000, exit_seconds=0.1)) as link:
            client = await link.open(4000, Client)
            for _ in range(100):
                client.transport.write(b"x" * 65536)
            await until(client.over.is_set)
            await link.wait_closed()
            assert "does not read" in link.lost_reason

    run(test)


@pytest.mark.parametrize("says", ["10.0.0.1 5 6", "evil.example 5 6", "", f"::1 {'9' * 5000} 5 6"])
def test_where_a_port_is_found_is_not_for_a_relay_to_say(says: str) -> None:
    async def test() -> None:
        relays = RelayPool(lambda _: agreeing(1, says))
        relays.attach()
        found = await relays.check_async(ATTEMPT, 4000)
        assert (found.host, found.socket_identity) == ("127.0.0.1", (5, 6) if says else ())
        [kept] = relays._relays.values()
        assert kept.link is not None
        kept.link._process.kill()
        await relays.close()

    run(test)
