"""Past jobs as sacct prints them: whatever their users called them."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.engines.contract import PastJob
from heliostat.engines.slurm.sacct_history import SacctReader
from heliostat.errors import Invalid
from heliostat.models import AttemptUsage, JobState

HEADER = (
    "JobID|Cluster|User|Account|State|ExitCode|Submit|Start|End|TimelimitRaw|QOS|AllocCPUS|AllocTRES|ReqTRES|"
    "ReqMem|NodeList|TotalCPU|MaxRSS|AveRSS|NTasks|JobName"
)
MADE_AT = 1_794_805_354


def line(**changed: str) -> str:
    fields = {
        "JobID": "12",
        "Cluster": "lab",
        "User": "ann",
        "Account": "tumours",
        "State": "COMPLETED",
        "ExitCode": "0:0",
        "Submit": str(MADE_AT),
        "Start": str(MADE_AT + 60),
        "End": str(MADE_AT + 660),
        "TimelimitRaw": "60",
        "QOS": "normal",
        "AllocCPUS": "8",
        "AllocTRES": "billing=8,cpu=8,gres/gpu=2,gres/gpu:a100=2,mem=16G,node=1",
        "ReqTRES": "billing=8,cpu=8,gres/gpu=2,mem=16G,node=1",
        "ReqMem": "16G",
        "NodeList": "n1",
        "TotalCPU": "10:00.000",
        "JobName": "train",
    }
    return "|".join((fields | changed).get(name, "") for name in HEADER.split("|"))


def read(*lines: str, **options: object) -> list[PastJob]:
    return list(SacctReader(**options).read_jobs([HEADER, *lines]))  # type: ignore[arg-type]


def at(seconds: int) -> datetime:
    return datetime.fromtimestamp(MADE_AT + seconds, UTC)


def test_a_job_with_its_steps_is_one_record() -> None:
    batch = line(JobID="12.batch", User="", State="COMPLETED", MaxRSS="2048M", AveRSS="2048M", NTasks="1")
    step = line(JobID="12.0", User="", State="OUT_OF_MEMORY", MaxRSS="3G", AveRSS="2G", NTasks="4")
    (job,) = read(line(), batch, step)
    assert job == PastJob(
        cluster="lab",
        external_job_id="12",
        user="ann",
        account="tumours",
        name="train",
        state=JobState.COMPLETED,
        reason=None,
        exit_code=0,
        submitted_at=at(0),
        started_at=at(60),
        ended_at=at(660),
        cpus=8,
        memory_mib=16384,
        gpus=2,
        gpu_type="a100",
        nodes=("n1",),
        time_limit_seconds=3600,
        qos="normal",
        usage=AttemptUsage(600.0, 600.0, 8192.0, 1200.0, True),
    )


@pytest.mark.parametrize(
    ("said", "state", "reason"),
    [
        ("FAILED", JobState.FAILED, "exit code 3"),
        ("OUT_OF_MEMORY", JobState.FAILED, "out of memory"),
        ("CANCELLED by 1000", JobState.CANCELLED, "cancelled"),
        ("CANCELLED", JobState.CANCELLED, "cancelled"),
        ("PREEMPTED", JobState.CANCELLED, "preempted for another job"),
        ("TIMEOUT", JobState.TIMED_OUT, "time limit reached"),
        ("NODE_FAIL", JobState.LOST, "its node failed"),
    ],
)
def test_each_end_is_told_in_our_words(said: str, state: JobState, reason: str) -> None:
    (job,) = read(line(State=said, ExitCode="3:0"))
    assert (job.state, job.reason) == (state, reason)


def test_what_is_not_over_is_left_out_and_counted() -> None:
    reader = SacctReader()
    running = line(JobID="13", State="RUNNING", End="Unknown")
    pending = line(JobID="12_[3-9%2]", State="PENDING", Start="Unknown", End="Unknown")
    assert list(reader.read_jobs([HEADER, running, line(JobID="13.batch", State="RUNNING"), pending])) == []
    assert reader.skipped_counts == {"not over": 2}


def test_a_job_cancelled_before_it_ran_never_started() -> None:
    waiting = {"State": "CANCELLED by 0", "NodeList": "None assigned", "AllocTRES": "", "AllocCPUS": "0"}
    (job,) = read(line(JobID="12_[3-9]", **waiting))
    assert (job.external_job_id, job.started_at, job.exit_code, job.nodes, job.usage) == (
        "12_[3-9]",
        None,
        None,
        (),
        None,
    )
    assert (job.cpus, job.gpus, job.memory_mib) == (8, 2, 16384)


def test_elements_of_arrays_and_parts_of_compound_jobs_keep_their_numbers() -> None:
    jobs = read(line(JobID="12_3"), line(JobID="12_3.batch", MaxRSS="1G"), line(JobID="40+0"), line(JobID="40+1"))
    assert [job.external_job_id for job in jobs] == ["12_3", "40+0", "40+1"]
    assert jobs[0].usage
    assert jobs[0].usage.memory_mib == 1024.0


def test_names_with_bars_and_line_breaks_harm_nobody() -> None:
    hostile = line(JobName="a|b\n999|x\n\x1b[31m")
    reader = SacctReader()
    jobs = list(reader.read_jobs([HEADER, *hostile.split("\n"), line(JobID="13")]))
    assert [(job.external_job_id, job.name) for job in jobs] == [("12", "a|b"), ("13", "train")]
    assert reader.skipped_counts == {"unreadable lines": 2}


def test_a_job_submitted_by_a_heliostat_names_its_attempt_whatever_else_is_in_the_command() -> None:
    header = f"{HEADER}|SubmitLine"
    own = "sbatch --parsable --comment=heliostat:0123456789ab:7.2 --job-name=a|b"
    lines = [f"{line()}|{own}", f"{line(JobID='13')}|sbatch --wrap x", line(JobID="14", JobName="broken")]
    jobs = list(SacctReader().read_jobs([header, *lines]))
    assert [(job.external_job_id, job.heliostat_attempt) for job in jobs] == [
        ("12", "7.2"),
        ("13", None),
        ("14", None),
    ]


def test_probes_of_the_doctor_are_skipped_but_not_long_jobs_of_that_name() -> None:
    reader = SacctReader()
    probe = line(JobName="heliostat-doctor", TimelimitRaw="1")
    jobs = list(reader.read_jobs([HEADER, probe, line(JobID="13", JobName="heliostat-doctor")]))
    assert [job.external_job_id for job in jobs] == ["13"]
    assert reader.skipped_counts == {"probes of helio doctor": 1}


def test_a_bar_in_a_name_that_is_not_the_last_field_loses_the_job_and_shifts_nothing() -> None:
    header = "JobID|JobName|User|Account|State|Submit|Start|End"
    lines = [header, f"1|a|b|ann|lab|COMPLETED|{MADE_AT}|{MADE_AT}|{MADE_AT}"]
    reader = SacctReader()
    assert (list(reader.read_jobs(lines)), reader.skipped_counts) == ([], {"unreadable lines": 1})


def test_with_a_delimiter_nobody_can_guess_no_name_can_pretend_to_be_a_job() -> None:
    between = "\x1f5e1f\x1f"
    forged = line(User="root", JobName="x").replace("12|", "999|", 1)
    text = [HEADER, line(JobName="mine"), line(JobID="13")]
    lines = [one.replace("|", between) for one in text]
    lines.insert(2, forged)
    reader = SacctReader(delimiter=between)
    assert [job.external_job_id for job in reader.read_jobs(lines)] == ["12", "13"]


def test_times_of_the_clock_on_the_wall_are_those_of_the_zone() -> None:
    given = {"Submit": "2026-07-01T12:00:00", "Start": "2026-07-01T12:00:00", "End": "2026-07-01T13:00:00"}
    (job,) = read(line(**given), zone=ZoneInfo("Europe/Berlin"))
    assert job.submitted_at == datetime(2026, 7, 1, 10, tzinfo=UTC)


def test_memory_of_old_versions_is_that_of_each_node_or_cpu() -> None:
    old = {"AllocTRES": "", "ReqTRES": ""}
    jobs = read(line(ReqMem="4Gn", NodeList="n[1-3]", **old), line(JobID="13", ReqMem="100Mc", **old))
    assert [job.memory_mib for job in jobs] == [12288, 800]


def test_a_clock_that_was_set_back_makes_no_time_less_than_none() -> None:
    (job,) = read(line(Start=str(MADE_AT - 5), End=str(MADE_AT - 9)))
    assert (job.started_at, job.ended_at) == (at(0), at(0))


def test_a_file_without_its_header_is_refused_with_what_it_lacks() -> None:
    with pytest.raises(Invalid, match="JobID, User"):
        list(SacctReader().read_jobs([line()]))
    with pytest.raises(Invalid):
        list(SacctReader().read_jobs([]))


@given(st.lists(st.text()), st.lists(st.lists(st.text(max_size=12), min_size=21, max_size=21)))
def test_no_text_makes_the_reader_fail(lines: list[str], rows: list[list[str]]) -> None:
    read(*lines, *("|".join(row) for row in rows))


_WORD = st.one_of(
    st.text(max_size=8), st.sampled_from(["", "Unknown", "1794805354", "12", "0:9", "4Gn", "n[1-3]"])
)


@given(st.dictionaries(st.sampled_from(HEADER.split("|")[5:]), _WORD))
def test_whatever_the_fields_hold_sizes_and_times_are_in_order(fields: dict[str, str]) -> None:
    for job in read(line(**fields)):
        assert job.submitted_at <= (job.started_at or job.submitted_at) <= job.ended_at
        assert (job.cpus >= 1, job.memory_mib >= 1, job.gpus >= 0) == (True, True, True)
        assert job.name.isprintable()
