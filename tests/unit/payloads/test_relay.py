"""The end of a relay inside a job, beside a server of that job."""

import asyncio
import socket
import struct

from heliostat.payloads import relay_frames as frames
from heliostat.payloads.port_listeners import NotListening, PortSockets
from heliostat.payloads.relay import Relay, _Connection

AT_ONCE = struct.pack("ii", 1, 0)  # whoever closes with this reads nothing more: what was on its way is refused


def test_what_a_server_says_before_it_hangs_up_is_heard_even_while_it_is_written_to() -> None:
    told = asyncio.run(_write_to_one_that_has_answered_and_gone())
    assert [(frame.kind, frame.payload) for frame in told] == [(frames.DATA, b"too large"), (frames.CLOSE, b"")]


async def _write_to_one_that_has_answered_and_gone() -> list[frames.Frame]:
    reader, told, is_over = frames.FrameReader(), list[frames.Frame](), asyncio.Event()

    def tell(data: bytes) -> None:
        told.extend(frame for frame in reader.feed(data) if frame.kind in (frames.DATA, frames.CLOSE))
        if told and told[-1].kind == frames.CLOSE:
            is_over.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        make = lambda: _Connection(Relay(_nobody, tell), 1, tell)  # noqa: E731
        opening = asyncio.get_running_loop().create_connection(make, *listener.getsockname())
        _, connection = await opening
        server, _ = listener.accept()
        server.sendall(b"too large")
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        server.close()
        connection.begin()
        connection.receive_frame(frames.Frame(frames.DATA, 1, b"more"))
        await asyncio.wait_for(is_over.wait(), 20)
    return told


def _nobody(port: int) -> PortSockets:
    raise NotListening(str(port))
