"""Lines of Slurm's commands become records, and no line breaks the reading."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.engines.slurm.command_output import (
    SlurmJob,
    expand_host_list,
    parse_gres_gpus,
    parse_job_comments,
    parse_job_devices,
    parse_planned_start,
    parse_sacct_jobs,
    parse_sinfo_nodes,
    parse_squeue_jobs,
    parse_submitted_job_id,
    parse_whole_seconds,
)
from heliostat.engines.slurm.mapping import make_node
from heliostat.models import NodeState

Q = "2|1-02:03:04|30:00|4294901|main|1699999999|cpu=2,mem=1G,node=1,gres/gpu=3"  # of the queue


def test_a_running_job_of_squeue() -> None:
    (job,) = parse_squeue_jobs(f"12_3|RUNNING|1001|0|1700000000|1700003600|n[1-2]|{Q}|None|\n")
    assert (str(job.job_id), job.uid, job.nodes) == ("12_3", 1001, ("n1", "n2"))
    assert job.started_at == datetime.fromtimestamp(1700000000, UTC)
    assert (job.is_waiting, job.is_terminal, job.has_started) == (False, False, True)
    assert (job.queue_details.restart_count, job.queue_details.priority, job.queue_details.partition) == (
        2,
        4294901,
        "main",
    )
    assert parse_whole_seconds(job.queue_details.time_used) == 93784
    assert job.queue_details.submit_time == "1699999999"


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
    assert parse_whole_seconds(text) == seconds


def test_a_waiting_job_has_neither_start_nor_nodes() -> None:
    (job,) = parse_squeue_jobs(f"12|PENDING|1001|0|N/A|N/A||{Q}|Resources|\n")
    assert (job.is_waiting, job.has_started, job.started_at, job.reason) == (True, False, None, "Resources")


def test_a_job_that_is_expected_to_start_has_not_run() -> None:
    (job,) = parse_squeue_jobs(f"12|PENDING|1001|0|1700000000|1700003600||{Q}|Priority|\n")
    assert not job.has_started


@pytest.mark.parametrize(
    ("status", "code", "signal"), [("0", 0, 0), ("768", 3, 0), ("15", 0, 15), ("36608", 143, 0)]
)
def test_the_status_of_squeue_is_that_of_wait(status: str, code: int, signal: int) -> None:
    (job,) = parse_squeue_jobs(f"12|FAILED|1001|{status}|1700000000|1700000001|n1|{Q}|NonZeroExitCode|\n")
    assert (job.exit_code, job.signal, job.is_terminal) == (code, signal, True)


@pytest.mark.parametrize(("status", "code", "signal"), [("0:0", 0, 0), ("3:0", 3, 0), ("0:9", 0, 9)])
def test_the_status_of_sacct_is_code_and_signal(status: str, code: int, signal: int) -> None:
    (job,) = parse_sacct_jobs(f"12|CANCELLED by 1001|1001|{status}|1700000000|1700000001|None assigned|None")
    assert (job.state, job.exit_code, job.signal, job.nodes) == ("CANCELLED", code, signal, ())


@given(st.text())
def test_no_text_breaks_the_reading(text: str) -> None:
    assert all(isinstance(job, SlurmJob) for job in parse_squeue_jobs(text))
    assert all(isinstance(job, SlurmJob) for job in parse_sacct_jobs(text))
    list(parse_sinfo_nodes(text))
    list(parse_gres_gpus(text))
    expand_host_list(text)
    parse_submitted_job_id(text)
    list(parse_job_comments(text))


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
    assert expand_host_list(text) == names


@given(st.integers(0, 500), st.integers(0, 50), st.integers(1, 5))
def test_a_range_holds_every_number_once_and_as_wide(first: int, more: int, width: int) -> None:
    numbers = [str(number).zfill(width) for number in range(first, first + more + 1)]
    assert expand_host_list(f"n[{numbers[0]}-{numbers[-1]}]") == tuple(
        f"n{str(int(number)).zfill(len(numbers[0]))}" for number in numbers
    )


def test_gpus_are_counted_by_type() -> None:
    assert list(parse_gres_gpus("gpu:a100:4(S:0-1),gpu:t4:2,fpga:1")) == [("a100", 4), ("t4", 2)]
    assert list(parse_gres_gpus("gpu:8")) == [("gpu", 8)]
    slices = "gpu:1g.10gb:2(S:0),gpu:a100_1g.5gb:7(S:0-1),gpu:1g.5gb+me:1"
    assert list(parse_gres_gpus(slices)) == [("1g.10gb", 2), ("a100_1g.5gb", 7), ("1g.5gb+me", 1)]
    assert list(parse_gres_gpus("(null)")) == []


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
    (found,) = parse_sinfo_nodes(line + line)  # once for each partition
    node = make_node(found)
    assert (node.name, node.state, node.cpus, node.memory_mib) == ("n1", state, 16, 16000)
    assert [(device.index, device.type) for device in node.devices] == [(0, "a100"), (1, "a100")]
    assert dict(node.labels) == {"fast": "", "ib": ""}
    assert node.reason == (None if state is NodeState.UP else "broken fan")


def test_the_number_of_a_submission_is_read_with_and_without_a_cluster() -> None:
    assert [parse_submitted_job_id(text) for text in ("12\n", "12;lab\n", "", "sbatch: hm\n")] == [
        12,
        12,
        None,
        None,
    ]


def test_a_comment_must_be_exactly_ours() -> None:
    text = "7|heliostat:ab:1.1|\n8|heliostat:ab:1.10|\n9||\nx|heliostat:ab:1.1|\n"
    assert [number for number, said in parse_job_comments(text) if said == "heliostat:ab:1.1"] == [7]


def test_the_gpus_of_a_running_job_are_read_for_its_own_nodes() -> None:
    text = (
        "JobId=2 JobName=x Nodes=n9 CPU_IDs=0 Mem=1 GRES=gpu:t4:1(IDX:0) JobState=RUNNING "
        "JOB_GRES=gpu:a100:5 Nodes=n[1-2] CPU_IDs=0-1 Mem=100 GRES=gpu:a100:2(IDX:0,3)   "
        "Nodes=n3 CPU_IDs=4 Mem=100 GRES=gpu:a100:1(IDX:2) MinCPUsNode=1 Comment=y"
    )
    assert parse_job_devices(text, ("n1", "n2", "n3")) == {"n1": (0, 3), "n2": (0, 3), "n3": (2,)}
    assert parse_job_devices("Nodes=n1 CPU_IDs=1 Mem=100 GRES= MinCPUsNode=1", ("n1",)) == {}


def test_the_planned_start_of_a_test_submission() -> None:
    line = "sbatch: Job 7 to start at 1700000000 using 4 processors on nodes n1 in partition main\n"
    assert parse_planned_start(f"sbatch: a plugin says hello\n{line}") == datetime.fromtimestamp(1700000000, UTC)
    assert parse_planned_start("sbatch: Job 7 to start at N/A using 4 processors\n") is None
    assert parse_planned_start("") is None
