"""`helio history export`, as it is typed."""

import json

from unit.client.stand_in_server import stream


def test_history_is_printed_line_by_line(helio, serve):
    server = serve(stream('{"id": 1, "user": "ann"}\n{"id": 2, "user": "ann"}\n{"jobs": 2}\n'))
    ran = helio("history", "export", "--from", "2026-10-01", "--to", "2026-11-01T00:00+01:00", "--anonymous")
    assert ran.code == 0, ran.err
    assert [json.loads(line)["id"] for line in ran.out.splitlines()] == [1, 2]
    assert b"from=2026-10-01T00%3A00%3A00%2B00%3A00&to=2026-11-01T00%3A00%3A00%2B01%3A00" in server.requests[0]


def test_history_as_json_is_one_list(helio, serve):
    serve(stream('{"id": 1}\n{"jobs": 1}\n'))
    assert json.loads(helio("history", "export", "--json").out) == [{"id": 1}]


def test_a_history_that_was_cut_short_is_not_a_success(helio, serve):
    serve(stream('{"id": 1}\n'))
    ran = helio("history", "export")
    assert ran.code == 3
    assert "cut short" in ran.err


def test_a_time_that_is_none_is_refused(helio):
    ran = helio("history", "export", "--from", "last month")
    assert ran.code == 2
    assert "not a time" in ran.err
