"""What the two ends of a relay say to each other, whole whatever pieces it comes in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.payloads import relay_frames as frames
from heliostat.payloads.relay_frames import WINDOW_BYTES, BadFrame, Frame, FrameReader, ReceiveWindow, SendWindow

KINDS = st.integers(frames.OPEN, frames.CLOSE)
FRAMES = st.lists(st.builds(Frame, KINDS, st.integers(0, 2**32 - 1), st.binary(max_size=300)), max_size=20)


@given(FRAMES, st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_frames_come_out_as_they_went_in_however_they_are_cut(sent: list[Frame], cuts: list[int]) -> None:
    data, reader, got, at = b"".join(frames.encode_frame(*frame) for frame in sent), FrameReader(), [], 0
    for turn in range(len(data)):
        size = cuts[turn % len(cuts)]
        got += reader.feed(data[at : at + size])
        at += size
    assert got == sent


@given(st.binary(max_size=400))
def test_noise_is_refused_or_waits_for_more_and_never_breaks(noise: bytes) -> None:
    try:
        for frame in FrameReader().feed(noise):
            assert frames.OPEN <= frame.kind <= frames.CLOSE
    except BadFrame:
        pass


@pytest.mark.parametrize("kind", [frames.OPEN, frames.CHECK, frames.CREDIT])
@pytest.mark.parametrize("payload", [b"", b"x", b"xxxxx"])
def test_a_number_of_the_wrong_size_is_refused(kind: int, payload: bytes) -> None:
    with pytest.raises(BadFrame):
        _ = Frame(kind, 1, payload).number


@given(
    st.lists(
        st.one_of(st.binary(max_size=3 * frames.MAX_FRAME_DATA_BYTES), st.integers(1, 2 * WINDOW_BYTES)),
        max_size=12,
    ),
    st.sampled_from([frames.EOF, frames.CLOSE]),
)
def test_all_that_is_written_arrives_in_order_and_never_more_than_there_is_room_for(
    moves: list[bytes | int], last: int
) -> None:
    """Bytes are written, a number lets the other end take so much of what it has."""
    wire: list[bytes] = []
    back: list[bytes] = []
    out, room = SendWindow(7, wire.append), ReceiveWindow(7, back.append)
    told, come, unread, reader, answers = b"", b"", 0, FrameReader(), FrameReader()
    ends: list[int] = []
    for move in [*moves, None, *([WINDOW_BYTES] * 200)]:
        if move is None:
            out.finish(last)
        elif isinstance(move, bytes):
            out.write(move)
            told += move
        else:
            taken = min(move, unread)
            unread -= taken
            room.release(taken)
        for frame in reader.feed(b"".join(wire)):
            if frame.kind == frames.DATA:
                assert len(frame.payload) <= frames.MAX_FRAME_DATA_BYTES
                room.receive(len(frame.payload))
                come, unread = come + frame.payload, unread + len(frame.payload)
            else:
                ends.append(frame.kind)
        wire.clear()
        for frame in answers.feed(b"".join(back)):
            out.add_credit(frame)
        back.clear()
    for frame in reader.feed(b"".join(wire)):
        come += frame.payload
        ends += [frame.kind] if frame.kind != frames.DATA else []
    assert (come, ends) == (told, [last])


def test_who_sends_more_than_there_is_room_for_is_found_out() -> None:
    room = ReceiveWindow(1, lambda _: None)
    room.receive(WINDOW_BYTES)
    with pytest.raises(BadFrame):
        room.receive(1)


@pytest.mark.parametrize("count", [0, 1001, WINDOW_BYTES, 2**32 - 1])
def test_who_grants_nothing_or_what_was_never_sent_is_found_out(count: int) -> None:
    out = SendWindow(1, lambda _: None)
    out.write(b"x" * 1000)
    with pytest.raises(BadFrame):
        out.add_credit(FrameReader().feed(frames.encode_credit_frame(1, count))[0])


def test_who_sends_nothing_again_and_again_is_found_out() -> None:
    with pytest.raises(BadFrame):
        ReceiveWindow(1, lambda _: None).receive(0)


def test_what_is_held_goes_on_as_it_was_written() -> None:
    sent: list[bytes] = []
    out = SendWindow(1, sent.append)
    out.pause()
    out.write(b"one")
    out.finish(frames.EOF)
    assert (sent, out.buffered_bytes) == ([], 3)
    out.resume()
    assert FrameReader().feed(b"".join(sent)) == [Frame(frames.DATA, 1, b"one"), Frame(frames.EOF, 1)]


def test_what_is_dropped_is_not_sent_and_the_last_word_is() -> None:
    sent: list[bytes] = []
    out = SendWindow(1, sent.append)
    out.write(b"x" * (WINDOW_BYTES + 5))
    out.finish(frames.EOF)
    assert out.buffered_bytes == 5
    out.discard()
    out.finish(frames.CLOSE)
    kinds = [frame.kind for frame in FrameReader().feed(b"".join(sent))]
    assert (set(kinds), kinds.count(frames.CLOSE), frames.EOF in kinds) == ({frames.DATA, frames.CLOSE}, 1, False)
