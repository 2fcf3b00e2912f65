"""A server that answers and hangs up, while we still talk to it and before we have looked: its answer counts."""

import asyncio
import socket
import threading
from collections.abc import Callable

import pytest
import uvloop

from heliostat.proxy.upstream import UnreadResponse, UpstreamConnection

ANSWER = b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge"


def hang_up(listener: socket.socket) -> None:
    """With what was sent unread: the kernel tells the other end by a reset."""
    accepted, _ = listener.accept()
    accepted.recv(1)
    accepted.sendall(ANSWER)
    accepted.close()


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_answer_of_who_hangs_up_while_we_send_is_heard(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def ask(port: int, other: threading.Thread) -> tuple[int, bytes]:
        _, connection = await asyncio.get_running_loop().create_connection(UpstreamConnection, "127.0.0.1", port)
        connection.begin_request(b"POST")
        connection.keep_unread_response()
        connection.write_nowait(b"xx")
        other.join()  # nothing is read meanwhile
        for _ in range(3):
            connection.write_nowait(b"x" * 1000)
        await asyncio.sleep(0)
        return (await connection.read_head()).status, await connection.read_body_part()

    with socket.create_server(("127.0.0.1", 0)) as listener, asyncio.Runner(loop_factory=make_loop) as runner:
        other = threading.Thread(target=hang_up, args=[listener])
        other.start()
        assert runner.run(ask(listener.getsockname()[1], other)) == (413, b"large")


def test_whoever_has_no_socket_has_no_last_words() -> None:
    words = UnreadResponse()
    words.keep_socket(asyncio.Transport())
    assert list(words.read_remaining()) == []
