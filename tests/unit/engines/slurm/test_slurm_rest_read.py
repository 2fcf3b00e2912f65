"""What slurmrestd 22.05 answers, read: the same records as from the tools."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.engines.slurm.arrays import ranges
from heliostat.engines.slurm.parse import Standing, seconds_of
from heliostat.engines.slurm.rest_read import (
    devices_in,
    elements_in,
    jobs_in,
    loads_in,
    nodes_in,
    partitions_in,
    past_jobs_in,
    reservations_in,
    texts_in,
)
from heliostat.models import Reading

NOW = datetime.fromtimestamp(1_794_809_100, UTC)
JOB: dict[str, Any] = {
    "job_id": 1,
    "array_job_id": 0,
    "array_task_id": None,
    "array_task_string": "",
    "job_state": "RUNNING",
    "user_id": 1001,
    "exit_code": 0,
    "start_time": 1_794_809_015,
    "end_time": 1_794_809_615,
    "nodes": "n[1-2]",
    "state_reason": "None",
    "restart_cnt": 0,
    "time_limit": 10,
    "priority": 7,
    "partition": "main",
    "submit_time": 1_794_809_000,
    "suspend_time": 0,
    "pre_sus_time": 0,
    "tres_req_str": "cpu=1",
    "tres_alloc_str": "cpu=1,gres/gpu=2",
    "comment": 'heliostat:x:1.1\n2|FAILED"',
    "name": "train",
}
NODE: dict[str, Any] = {
    "name": "n1",
    "cpus": 16,
    "real_memory": 16000,
    "gres": "gpu:a100:4",
    "features": "fast,ssd",
    "reason": "",
    "state": "idle",
    "state_flags": [],
    "cpu_load": 189,
    "free_memory": 10_000,
}


def job(**fields: Any) -> Any:
    found = jobs_in({"jobs": [{**JOB, **fields}]}, NOW)
    return next(iter(found.values()))


def test_a_running_job_is_read_as_squeue_would_have_said_it() -> None:
    found = job()
    assert (found.number, found.state, found.uid, found.nodes) == (1, "RUNNING", 1001, ("n1", "n2"))
    assert found.started_at == datetime.fromtimestamp(1_794_809_015, UTC)
    assert found.place == Standing(0, "0-00:01:25", "0-00:10:00", 7, "main", "1794809000", "cpu=1,gres/gpu=2")
    assert seconds_of(found.place.used) == 85


def test_how_a_job_ended_is_in_its_status() -> None:
    assert (job(job_state="FAILED", exit_code=768).exit_code, job(job_state="FAILED", exit_code=9).signal) == (
        3,
        9,
    )


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"job_state": "PENDING"}, 0),
        ({"job_state": "SUSPENDED", "suspend_time": 1_794_809_050, "pre_sus_time": 35}, 35),
        ({"suspend_time": 1_794_809_090, "pre_sus_time": 35}, 45),
        ({"job_state": "COMPLETED"}, 600),
    ],
)
def test_the_time_a_job_was_suspended_does_not_count(fields: dict[str, Any], seconds: int) -> None:
    assert seconds_of(job(**fields).place.used) == seconds


def test_without_a_limit_a_running_job_has_no_end() -> None:
    found = job(time_limit=None)
    assert (found.place.limit, found.ended_at) == ("UNLIMITED", None)


def test_elements_that_wait_are_each_a_job() -> None:
    array = {**JOB, "job_id": 2, "array_job_id": 2, "array_task_string": "3,5-9:2%1", "job_state": "PENDING"}
    runs = {**JOB, "job_id": 3, "array_job_id": 2, "array_task_id": 1}
    found = jobs_in({"jobs": [runs, array]}, NOW)
    assert sorted((str(number), one.state) for number, one in found.items()) == [
        ("2_1", "RUNNING"),
        ("2_3", "PENDING"),
        ("2_5", "PENDING"),
        ("2_7", "PENDING"),
        ("2_9", "PENDING"),
    ]


@given(st.sets(st.integers(0, 1000), min_size=1))
def test_the_indexes_of_an_array_come_back_as_they_were(indexes: set[int]) -> None:
    assert set(elements_in(ranges(sorted(indexes)) + "%3")) == indexes


@given(st.sets(st.integers(0, 1000), min_size=1), st.integers(0, 60))
def test_of_a_list_that_was_cut_no_element_is_taken_for_gone(indexes: set[int], length: int) -> None:
    whole = ranges(sorted(indexes))
    assert set(elements_in(f"{whole[:length]}...%3")) >= indexes


def test_what_is_cut_off_does_not_hide_an_element_that_runs() -> None:
    array = {**JOB, "job_id": 2, "array_job_id": 2, "array_task_string": "3,5,...%1", "job_state": "PENDING"}
    runs = {**JOB, "job_id": 3, "array_job_id": 2, "array_task_id": 7}
    for jobs in ([runs, array], [array, runs]):
        states = {str(number): one.state for number, one in jobs_in({"jobs": jobs}, NOW).items()}
        assert (states["2_7"], states["2_8"]) == ("RUNNING", "PENDING")


def test_a_comment_is_one_value_whatever_is_in_it() -> None:
    other = {**JOB, "job_id": 2, "user_id": 1002}
    assert texts_in({"jobs": [JOB, other]}, "comment", 1001) == {1: 'heliostat:x:1.1\n2|FAILED"'}
    assert texts_in({"jobs": [JOB, other]}, "name") == {1: "train", 2: "train"}


def test_the_gpus_of_each_node_are_those_of_its_place_in_the_list() -> None:
    entry = {**JOB, "job_resources": {"nodes": "n[1-2]"}}
    entry["gres_detail"] = ["gpu:a100:2(IDX:0,3)", "gpu:a100:1(IDX:1),gpu:t4:2(IDX:4-5)"]
    assert devices_in({"jobs": [entry]}, ("n1", "n2")) == {"n1": (0, 3), "n2": (1, 4, 5)}


@pytest.mark.parametrize(
    ("state", "flags", "said"),
    [
        ("idle", [], "idle"),
        ("idle", ["DRAIN"], "drained"),
        ("mixed", ["DRAIN"], "draining"),
        ("down", ["NOT_RESPONDING"], "down*"),
        ("idle", ["MAINTENANCE"], "maint"),
    ],
)
def test_the_state_of_a_node_is_in_the_words_of_sinfo(state: str, flags: list[str], said: str) -> None:
    (node,) = nodes_in({"nodes": [{**NODE, "state": state, "state_flags": flags}]})
    assert (node.state, node.gpus, node.features, node.reason) == (said, (("a100", 4),), ("fast", "ssd"), None)


def test_how_busy_a_node_is() -> None:
    unknown = {**NODE, "name": "n2", "cpu_load": 4_294_967_294, "free_memory": -2}
    assert loads_in({"nodes": [NODE, unknown]}) == {"n1": Reading(1.89, 6000.0), "n2": Reading(None, None)}


def test_partitions_and_reservations() -> None:
    main = {"name": "main", "nodes": "n[1-2]", "flags": ["default"], "state": "UP", "max_time_limit": -1}
    short = {"name": "short", "nodes": "n1", "flags": [], "state": "DRAIN", "max_time_limit": 60}
    found = partitions_in({"partitions": [main, {**short, "maximum_nodes_per_job": 2}]})
    assert (found["main"].is_default, found["main"].max_seconds, found["main"].nodes) == (True, None, {"n1", "n2"})
    assert (found["short"].is_open, found["short"].max_seconds, found["short"].max_nodes) == (False, 3600, 2)
    entry = {"name": "course", "node_list": "n1", "start_time": 1_794_809_000, "end_time": 1_794_809_600}
    (course,) = reservations_in({"reservations": [{**entry, "users": "ann,bob", "accounts": ""}]})
    assert (course.name, course.nodes, course.users) == ("course", ("n1",), ("ann", "bob"))


def test_the_accounting_leaves_exit_codes_out_but_not_that_it_failed() -> None:
    entry = {
        "job_id": 10,
        "array": {"job_id": 9, "task_id": 1},
        "user": "root",
        "state": {"current": "FAILED", "reason": "None"},
        "exit_code": {"status": "SUCCESS", "return_code": 0},
        "time": {"start": 1_794_809_000, "end": 1_794_809_600},
        "nodes": "n1",
    }
    killed = {**entry, "job_id": 11, "array": {}, "exit_code": {"return_code": None, "signal": {"signal_id": 9}}}
    nobody = {**entry, "user": "no-such-user"}
    found = {str(number): one for number, one in past_jobs_in({"jobs": [entry, killed, nobody]}).items()}
    assert (found["9_1"].exit_code, found["9_1"].uid) == (1, 0)
    assert (found["11"].exit_code, found["11"].signal) == (0, 9)
