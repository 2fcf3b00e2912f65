import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from heliostat.client import Client
from heliostat.client.address import ServerAddress
from heliostat.client.jobs import TERMINAL_JOB_STATES, JobArray, JobHandle
from heliostat.client.request_bodies import job_body
from heliostat.client.transport import Transport
from heliostat.models import TERMINAL_STATES, JobState
from unit.client.stand_in_server import answer

DONE = {"id": 7, "state": "completed", "exit_code": 0, "submitted_at": "2026-01-02T03:04:05Z", "started_at": None}


def sent(request: bytes) -> dict:
    return json.loads(request.split(b"\r\n\r\n", 1)[1])


def test_the_words_for_over_are_those_of_the_models():
    assert {state.value for state in TERMINAL_STATES} == TERMINAL_JOB_STATES


def test_what_is_not_said_is_left_to_the_server():
    assert job_body({"command": "true", "gpus": None}) == {"command": "true"}


def test_arguments_are_translated_to_fields():
    body = job_body({"command": ["ls", Path("/a b")], "time": "4h", "workdir": Path("/x"), "env": {"N": 3}})
    assert body == {"command": ["ls", "/a b"], "time_limit": "4h", "workdir": "/x", "env": {"N": "3"}}


def test_a_script_may_be_a_path(tmp_path):
    (tmp_path / "job.sh").write_text("#!/bin/sh\necho hi\n")
    assert job_body({"script": tmp_path / "job.sh"}) == {"script": "#!/bin/sh\necho hi\n"}


def test_an_unknown_field_is_named():
    with pytest.raises(TypeError, match="'gpu'"):
        Client().submit("true", gpu=1)  # type: ignore[call-overload]


def test_an_array_is_a_list_of_jobs(serve, tmp_path):
    serve(answer({"array_id": 3, "count": 2, "job_ids": [7, 8]}, 201), answer({"count": 2}))
    array = Client(home=tmp_path).submit("true", array="0-1")
    assert ([job.id for job in array], array.id, len(array), array[0].id) == ([7, 8], 3, 2, 7)
    assert array.cancel() == 2


def test_many_jobs_go_in_one_request_and_are_looked_up_only_when_asked(serve, tmp_path):
    server = serve(answer({"count": 2, "job_ids": [7, 8], "array_ids": []}, 201), answer(DONE))
    jobs = Client(home=tmp_path).submit_many([{"command": "a"}, {"command": ["b"], "time": 60}])
    here = str(Path.cwd())
    bodies = [{"command": "a", "workdir": here}, {"command": ["b"], "time_limit": 60, "workdir": here}]
    assert sent(server.requests[0]) == {"jobs": bodies}
    assert len(server.requests) == 1
    assert jobs[0].state is JobState.COMPLETED


def test_waiting_asks_again_for_those_that_are_left(serve, tmp_path):
    server = serve(
        answer({"finished": [DONE], "unfinished": [8]}),
        answer({"finished": [{"id": 8, "state": "failed", "exit_code": 3}], "unfinished": []}),
    )
    first, second = Client(home=tmp_path).wait([7, 8])
    assert (first.ok, second.ok, second.exit_code) == (True, False, 3)
    assert sent(server.requests[1])["job_ids"] == [8]


def test_waiting_too_long_raises(serve, tmp_path):
    serve(answer({"finished": [], "unfinished": [7]}))
    with pytest.raises(TimeoutError, match="1 of 1"):
        Client(home=tmp_path).wait([7], timeout=0)


@pytest.mark.parametrize("job", [7, JobHandle(Transport(ServerAddress()), 7)])
def test_one_job_is_waited_for_without_a_list(serve, tmp_path, job):
    serve(answer({"finished": [DONE], "unfinished": []}))
    assert [waited.id for waited in Client(home=tmp_path).wait(job)] == [7]


def test_jobs_come_page_by_page(serve, tmp_path):
    server = serve(
        answer({"items": [DONE, {**DONE, "id": 6}], "next_cursor": "6"}),
        answer({"items": [{**DONE, "id": 5}], "next_cursor": None}),
    )
    found = Client(home=tmp_path).jobs.list(state=["completed", "failed"], unfinished=False)
    assert [job.id for job in found] == [7, 6, 5]
    assert b"state=completed&state=failed" in server.requests[0]
    assert b"unfinished=false" in server.requests[0]
    assert b"cursor=6" in server.requests[1]


def test_a_limit_asks_for_no_more_than_it_needs(serve, tmp_path):
    server = serve(answer({"items": [DONE, DONE], "next_cursor": "6"}))
    assert len(list(Client(home=tmp_path).jobs.list(limit=2))) == 2
    assert len(server.requests) == 1


def test_a_log_is_read_to_its_end_as_it_was_at_the_start(serve, tmp_path):
    server = serve(
        answer(b"abc", X_Log_Size="5", X_Log_Offset="0"),
        answer(b"de", X_Log_Size="900", X_Log_Offset="3"),
    )
    assert Client(home=tmp_path).logs.text(7, "stdout") == "abcde"
    assert b"offset=3&limit=2" in server.requests[1]


def part(data: bytes, size: int, offset: int = 0) -> bytes:
    return answer(data, X_Log_Size=str(size), X_Log_Offset=str(offset))


def test_both_streams_are_read_in_the_order_they_were_written(serve, tmp_path):
    order = [{"stream": "stdout", "end": 1}, {"stream": "stderr", "end": 2}]
    serve(
        *(part(b"", 2), part(b"", 2), answer({"items": order})),
        *(part(b"a", 2), part(b"EE", 2), part(b"b", 2, offset=1), part(b"", 2, offset=2)),
    )
    assert Client(home=tmp_path).logs.text(7) == "aEEb"


def test_times_are_aware(serve, tmp_path):
    serve(answer(DONE))
    job = Client(home=tmp_path).jobs.get(7)
    assert job.submitted_at.utcoffset() is not None
    assert job.started_at is None


def test_when_takes_what_submit_takes(serve, tmp_path):
    foreseen = {"starts_now": True, "forecast": None, "what_if": [], "accuracy": {"within": 0, "of": 0}}
    server, client = serve(answer(foreseen), answer(foreseen)), Client(home=tmp_path)
    assert client.queue.when("python train.py", gpus=2)["starts_now"]
    assert sent(server.requests[0]) == {"command": "python train.py", "gpus": 2}
    client.queue.when(["python", "train.py"], array="0-9", time="8h")
    assert sent(server.requests[1]) == {"command": ["python", "train.py"], "array": "0-9", "time_limit": "8h"}


def test_jobs_arrays_and_times_are_written_as_the_server_reads_them():
    transport = Transport(ServerAddress())
    job, array = JobHandle(transport, 12), JobArray(transport, 5, [20, 21])
    body = job_body({"command": "true", "after": [job, 13, array], "after_any": job, "after_each": array})
    assert body["after"] == [12, 13, "array:5"]
    assert (body["after_any"], body["after_each"]) == (12, "array:5")
    assert job_body({"after_ok": "12,13"}) == {"after": "12,13"}
    assert job_body({"begin": timedelta(hours=2)}) == {"begin": "+7200s"}
    assert job_body({"begin": datetime(2026, 12, 1, 8, tzinfo=UTC)}) == {"begin": "2026-12-01T08:00:00+00:00"}
    assert job_body({"begin": "+2h"}) == {"begin": "+2h"}
