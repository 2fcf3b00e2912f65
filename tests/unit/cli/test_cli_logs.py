import json

import pytest

from unit.client.stand_in_server import answer

LOG = b"".join(b"line %d\n" % number for number in range(1, 6))


def part(data: bytes, offset: int = 0, size: int = len(LOG)) -> bytes:
    return answer(data, X_Log_Size=str(size), X_Log_Offset=str(offset))


def test_each_stream_goes_to_its_own(helio, serve):
    sizes = (part(b"", size=4), part(b"", size=4))
    serve(*sizes, answer({"items": []}), part(b"out\n", size=4), part(b"err\n", size=4))
    ran = helio("logs", "7")
    assert (ran.out, ran.err) == ("out\n", "err\n")


def test_bytes_that_are_no_text_come_through(capfdbinary, serve):
    from heliostat.cli.main import main

    serve(part(b"", size=2), part(b"\xff\x00", size=2))
    assert main(["logs", "7", "--stdout"]) == 0
    assert capfdbinary.readouterr().out == b"\xff\x00"


@pytest.mark.parametrize(("given", "asked"), [("12", b"offset=12"), ("-7", b"offset=28")])
def test_a_log_is_read_from_any_byte(helio, serve, given, asked):
    server = serve(part(b""), part(b"x", offset=34))
    helio("logs", "7", "--stdout", "--offset", given)
    assert asked in server.requests[1]


@pytest.mark.parametrize(("lines", "start"), [(1, 28), (2, 21), (5, 0), (99, 0), (0, 35)])
def test_the_last_lines_are_found_from_the_end(helio, serve, lines, start):
    server = serve(part(b""), part(LOG), part(LOG[start:], offset=start))
    helio("logs", "7", "--stdout", "--tail", str(lines))
    assert f"offset={start}&".encode() in server.requests[-1]


def test_the_last_line_may_lack_its_newline(helio, serve):
    server = serve(part(b"", size=3), part(b"a\nb", size=3), part(b"b", offset=2, size=3))
    assert helio("logs", "7", "--stdout", "--tail", "1").out == "b"
    assert b"offset=2&" in server.requests[-1]


def test_json_holds_both_streams(helio, serve):
    serve(part(b"", size=1), part(b"", size=1), part(b"a", size=1), part(b"b", size=1))
    assert json.loads(helio("logs", "7", "--json").out) == {"stdout": "a", "stderr": "b"}
