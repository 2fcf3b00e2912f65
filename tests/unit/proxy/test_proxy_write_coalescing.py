"""What leaves together, and what does not wait."""

import asyncio
from typing import Any

from heliostat.proxy.proxy_server import WriteCoalescingTransport


class Wire(asyncio.Transport):
    """Notes what is written, and in how many pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.is_closed = False

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.pieces.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


def gathered(*steps: str | int) -> Wire:
    """A text is written, of a number so many bytes; `wait` lets the loop go round; others are asked of it."""
    wire = Wire()

    async def write() -> None:
        gathering = WriteCoalescingTransport(wire, asyncio.get_running_loop())
        for step in steps:
            if step == "wait":
                await asyncio.sleep(0)
            elif step in ("close", "abort", "unwrap"):
                getattr(gathering, str(step))()
            else:
                gathering.write(step.encode() if isinstance(step, str) else b"x" * step)
        wire.pieces.append(b"|")

    asyncio.run(write())
    return wire


def test_head_and_body_leave_together() -> None:
    assert gathered("head", "body", "wait", "more", "wait").pieces == [b"headbody", b"more", b"|"]


def test_what_is_large_is_not_copied_and_keeps_its_place() -> None:
    assert gathered("head", 100_000, "end", "wait").pieces == [b"head", b"x" * 100_000, b"end", b"|"]


def test_nothing_is_left_behind_when_it_closes_or_becomes_a_tunnel() -> None:
    assert gathered("head", "body", "close").pieces == [b"headbody", b"|"]
    assert gathered("head", "unwrap").pieces == [b"head", b"|"]


def test_what_is_aborted_is_not_sent() -> None:
    assert gathered("head", "abort").pieces == [b"|"]
