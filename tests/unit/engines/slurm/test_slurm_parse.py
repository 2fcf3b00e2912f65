"""Lines of Slurm's commands become records, and no line breaks the reading."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.engines.slurm.mapping import node_of
from heliostat.engines.slurm.parse import (
    SlurmJob,
    comments_of,
    devices_of,
    expand_hosts,
    gpus_of,
    jobs_of_sacct,
    jobs_of_squeue,
    nodes_of_sinfo,
    seconds_of,
    submitted_number,
)
from heliostat.models import NodeState

Q = "2|1-02:03:04|30:00|4294901|main|1699999999|cpu=2,mem=1G,node=1,gres/gpu=3"  # of the queue


def test_a_running_job_of_squeue() -> None:
    (job,) = jobs_of_squeue(f"12_3|RUNNING|1001|0|1700000000|1700003600|n[1-2]|{Q}|None|\n")
    assert (str(job.number), job.uid, job.nodes) == ("12_3", 1001, ("n1", "n2"))
    assert job.started_at == datetime.fromtimestamp(1700000000, UTC)
    assert (job.is_waiting, job.is_over, job.has_run) == (False, False, True)
    assert (job.place.restarts, job.place.priority, job.place.partition) == (2, 4294901, "main")
    assert seconds_of(job.place.used) == 93784
    assert job.place.submitted == "1699999999"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:05", 5),
        ("30:00", 1800),
        ("02:00:01", 7201),
        ("365-00:00:00", 31536000),
        ("UNLIMITED", None),
        ("", None),
    ],
)
def test_a_span_of_time_is_read_as_slurm_prints_it(text: str, seconds: int | None) -> None:
    assert seconds_of(text) == seconds


def test_a_waiting_job_has_neither_start_nor_nodes() -> None:
    (job,) = jobs_of_squeue(f"12|PENDING|1001|0|N/A|N/A||{Q}|Resources|\n")
    assert (job.is_waiting, job.has_run, job.started_at, job.reason) == (True, False, None, "Resources")


def test_a_job_that_is_expected_to_start_has_not_run() -> None:
    (job,) = jobs_of_squeue(f"12|PENDING|1001|0|1700000000|1700003600||{Q}|Priority|\n")
    assert not job.has_run


@pytest.mark.parametrize(
    ("status", "code", "signal"), [("0", 0, 0), ("768", 3, 0), ("15", 0, 15), ("36608", 143, 0)]
)
def test_the_status_of_squeue_is_that_of_wait(status: str, code: int, signal: int) -> None:
    (job,) = jobs_of_squeue(f"12|FAILED|1001|{status}|1700000000|1700000001|n1|{Q}|NonZeroExitCode|\n")
    assert (job.exit_code, job.signal, job.is_over) == (code, signal, True)


@pytest.mark.parametrize(("status", "code", "signal"), [("0:0", 0, 0), ("3:0", 3, 0), ("0:9", 0, 9)])
def test_the_status_of_sacct_is_code_and_signal(status: str, code: int, signal: int) -> None:
    (job,) = jobs_of_sacct(f"12|CANCELLED by 1001|1001|{status}|1700000000|1700000001|None assigned|None")
    assert (job.state, job.exit_code, job.signal, job.nodes) == ("CANCELLED", code, signal, ())


@given(st.text())
def test_no_text_breaks_the_reading(text: str) -> None:
    assert all(isinstance(job, SlurmJob) for job in jobs_of_squeue(text))
    assert all(isinstance(job, SlurmJob) for job in jobs_of_sacct(text))
    list(nodes_of_sinfo(text))
    list(gpus_of(text))
    expand_hosts(text)
    submitted_number(text)
    list(comments_of(text))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("gpu1", ("gpu1",)),
        ("gpu[1-3]", ("gpu1", "gpu2", "gpu3")),
        ("gpu[08-10,12],login", ("gpu08", "gpu09", "gpu10", "gpu12", "login")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("gpu[1-2]-ib", ("gpu1-ib", "gpu2-ib")),
    ],
)
def test_lists_of_hosts_are_written_out(text: str, names: tuple[str, ...]) -> None:
    assert expand_hosts(text) == names


@given(st.integers(0, 500), st.integers(0, 50), st.integers(1, 5))
def test_a_range_holds_every_number_once_and_as_wide(first: int, more: int, width: int) -> None:
    numbers = [str(number).zfill(width) for number in range(first, first + more + 1)]
    assert expand_hosts(f"n[{numbers[0]}-{numbers[-1]}]") == tuple(
        f"n{str(int(number)).zfill(len(numbers[0]))}" for number in numbers
    )


def test_gpus_are_counted_by_type() -> None:
    assert list(gpus_of("gpu:a100:4(S:0-1),gpu:t4:2,fpga:1")) == [("a100", 4), ("t4", 2)]
    assert list(gpus_of("gpu:8")) == [("gpu", 8)]
    assert list(gpus_of("(null)")) == []


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("idle", NodeState.UP),
        ("mixed", NodeState.UP),
        ("allocated", NodeState.UP),
        ("idle~", NodeState.UP),
        ("idle*", NodeState.DOWN),
        ("down", NodeState.DOWN),
        ("drained", NodeState.DRAINED),
        ("draining", NodeState.DRAINED),
        ("mixed+drain", NodeState.DRAINED),
        ("maint", NodeState.DRAINED),
    ],
)
def test_a_node_of_sinfo_is_one_of_ours(said: str, state: NodeState) -> None:
    line = f"n1|{said}|16|16000|gpu:a100:2|fast,ib|broken fan|\n"
    (found,) = nodes_of_sinfo(line + line)  # once for each partition
    node = node_of(found)
    assert (node.name, node.state, node.cpus, node.memory_mib) == ("n1", state, 16, 16000)
    assert [(device.index, device.type) for device in node.devices] == [(0, "a100"), (1, "a100")]
    assert dict(node.labels) == {"fast": "", "ib": ""}
    assert node.reason == (None if state is NodeState.UP else "broken fan")


def test_the_number_of_a_submission_is_read_with_and_without_a_cluster() -> None:
    assert [submitted_number(text) for text in ("12\n", "12;lab\n", "", "sbatch: hm\n")] == [12, 12, None, None]


def test_a_comment_must_be_exactly_ours() -> None:
    text = "7|heliostat:ab:1.1|\n8|heliostat:ab:1.10|\n9||\nx|heliostat:ab:1.1|\n"
    assert [number for number, said in comments_of(text) if said == "heliostat:ab:1.1"] == [7]


def test_the_gpus_of_a_running_job_are_read_for_its_own_nodes() -> None:
    text = (
        "JobId=2 JobName=x Nodes=n9 CPU_IDs=0 Mem=1 GRES=gpu:t4:1(IDX:0) JobState=RUNNING "
        "JOB_GRES=gpu:a100:5 Nodes=n[1-2] CPU_IDs=0-1 Mem=100 GRES=gpu:a100:2(IDX:0,3)   "
        "Nodes=n3 CPU_IDs=4 Mem=100 GRES=gpu:a100:1(IDX:2) MinCPUsNode=1 Comment=y"
    )
    assert devices_of(text, ("n1", "n2", "n3")) == {"n1": (0, 3), "n2": (0, 3), "n3": (2,)}
    assert devices_of("Nodes=n1 CPU_IDs=1 Mem=100 GRES= MinCPUsNode=1", ("n1",)) == {}
