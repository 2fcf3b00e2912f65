"""Frames of connections that are closed here: only as many as could be on their way."""

import pytest

from heliostat.engines.relay.link import StrayFrameBudget
from heliostat.payloads import relay_frames as frames
from heliostat.payloads.relay_frames import WINDOW_BYTES, BadFrame, Frame


def test_a_closed_connection_may_say_what_was_on_its_way_and_no_more() -> None:
    strays = StrayFrameBudget()
    for _ in range(3):
        strays.add_closed_connection()
    for frame in [Frame(frames.DATA, 1, b"x" * 1024)] * (3 * WINDOW_BYTES // 1024) + [Frame(frames.CLOSE, 1)] * 3:
        strays.receive(frame)
    more = [Frame(frames.CREDIT, 1, b"0000")] * 1000
    with pytest.raises(BadFrame):
        list(map(strays.receive, more))
