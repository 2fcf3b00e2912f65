import pytest

from heliostat.client import Client
from heliostat.errors import ServerUnreachable
from unit.client.stand_in_server import stream


def test_past_jobs_come_one_by_one_without_the_line_that_counts_them(serve, tmp_path):
    server = serve(stream('{"id": 1}\n{"id": 2}\n{"jobs": 2}\n'))
    client = Client(home=tmp_path)
    assert list(client.jobs.history(since="2026-10-01T00:00:00Z", anonymous=True)) == [{"id": 1}, {"id": 2}]
    assert b"GET /api/v1/history?from=2026-10-01T00%3A00%3A00Z&anonymous=true" in server.requests[0]


@pytest.mark.parametrize("text", ["", '{"id": 1}\n', '{"id": 1}\n{"id', '{"id": 1}\n{"jobs": 2}'])
def test_an_export_that_was_cut_short_is_not_taken_for_a_whole_one(serve, tmp_path, text):
    serve(stream(text))
    with pytest.raises(ServerUnreachable, match="cut short"):
        list(Client(home=tmp_path).jobs.history())
