"""Trace readers, with a small file of each format."""

import gzip
from pathlib import Path

import pytest

from heliostat.errors import Invalid, NotFound
from heliostat.simulation.traces.csv_format import ColumnSource, parse_column_map, parse_row_filter
from heliostat.simulation.traces.reader import TraceReadOptions, read_trace
from heliostat.simulation.traces.submission_period import select_submission_period
from heliostat.simulation.traces.swf_format import GpuSource
from heliostat.simulation.traces.synthetic import SyntheticTraceSpec, generate_trace
from heliostat.simulation.traces.trace import MAX_DURATION_SECONDS, Trace, TraceJob, with_time_limit

CASES = Path(__file__).parents[2] / "cases" / "traces"
MAP = "submitted_at=stamp,run_seconds=seconds,gpus=num_gpus,project=cluster,user=who,memory_mib=mem_bytes/1048576"
STAMP = 1507011851.0  # 2017-10-03 06:24:11 UTC


def test_a_table_is_read_through_its_mapping_in_the_order_of_submission() -> None:
    trace = read_trace(CASES / "table.csv", TraceReadOptions(columns=parse_column_map([MAP])))
    assert trace.jobs[:2] == (
        TraceJob(STAMP - 251, 2951.5, gpus=8, user="bob", project="blue"),
        TraceJob(STAMP, 66.0, gpus=1, memory_mib=1024, user="ann", project="blue"),
    )


def test_a_timestamp_may_have_a_zone_and_gpus_may_be_a_fraction() -> None:
    trace = read_trace(
        CASES / "table.csv",
        TraceReadOptions(columns=parse_column_map([MAP]), row_filter={"cluster": frozenset({"red"})}),
    )
    assert [(job.submitted_at, job.gpus) for job in trace.jobs] == [(STAMP, 0.5)]


def test_conditions_on_one_column_widen_and_on_several_narrow() -> None:
    both = parse_row_filter(["cluster=blue", "cluster=red", "who=ann"])
    trace = read_trace(CASES / "table.csv", TraceReadOptions(columns=parse_column_map([MAP]), row_filter=both))
    assert [job.project for job in trace.jobs] == ["blue", "red"]
    assert trace.skipped == {"not selected": 2}


def test_a_compressed_file_gives_the_same_trace(tmp_path: Path) -> None:
    packed = tmp_path / "table.csv.gz"
    packed.write_bytes(gzip.compress((CASES / "table.csv").read_bytes()))
    how = TraceReadOptions(columns=parse_column_map([MAP]))
    assert read_trace(packed, how).jobs == read_trace(CASES / "table.csv", how).jobs


def test_the_default_user_is_the_project() -> None:
    how = TraceReadOptions(columns=parse_column_map(["submitted_at=stamp,run_seconds=seconds,project=cluster"]))
    assert {job.user for job in read_trace(CASES / "table.csv", how).jobs} == {"blue", "red", "green"}


def test_start_and_end_give_the_run_time(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("submitted_at,started_at,ended_at\n0,5,65\n1,,\n")
    trace = read_trace(file)
    assert [job.run_seconds for job in trace.jobs] == [60.0]
    assert trace.skipped == {"never ran": 1}


def test_the_standard_workload_format_gives_cpus_limits_users_and_groups() -> None:
    first, fourth, second = read_trace(CASES / "small.swf").jobs
    assert first == TraceJob(
        1000000.0, 100.0, 600.0, cpus=4, memory_mib=8192, user="user_3", project="group_1", id="1"
    )
    assert (second.submitted_at, second.cpus, second.limit_seconds, second.user) == (1000050.0, 2, None, "user")
    assert fourth.limit_seconds == 90.0, "a limit below the run time is raised to it"
    assert read_trace(CASES / "small.swf").skipped == {"never ran": 1}


def with_extra_columns(tmp_path: Path) -> Path:
    """The archive's file with the columns that converters add."""
    lines = (CASES / "small.swf").read_text().splitlines()
    extended = [f"{line} 3 gpu:v100" if line.strip()[:1].isdigit() else line for line in lines]
    (tmp_path / "small.swf").write_text("\n".join(extended))
    return tmp_path / "small.swf"


def test_columns_after_the_standard_ones_of_swf_are_ignored(tmp_path: Path) -> None:
    assert read_trace(with_extra_columns(tmp_path)) == read_trace(CASES / "small.swf")


def test_processors_of_swf_can_count_as_gpus() -> None:
    first, _, second = read_trace(CASES / "small.swf", TraceReadOptions(gpus_from=GpuSource.PROCS)).jobs
    assert (first.gpus, first.cpus, first.memory_mib) == (4, None, 8192)
    assert (second.gpus, second.cpus) == (2, None)


def test_gpus_from_processors_is_refused_for_other_formats() -> None:
    with pytest.raises(Invalid, match="--gpus-from works with SWF files only"):
        read_trace(CASES / "history.jsonl", TraceReadOptions(gpus_from=GpuSource.PROCS))


def test_a_history_export_is_read_completely() -> None:
    trace = read_trace(CASES / "history.jsonl")
    assert trace.jobs == (
        TraceJob(
            1790841600.0,
            3600.0,
            7200.0,
            gpus=2,
            cpus=8,
            memory_mib=16384,
            gpu_type="A100",
            user="ann",
            project="vision",
            department="radiology",
            priority_class="interactive",
            preemptible=True,
            tasks=2,
            id="7",
        ),
    )
    assert trace.skipped == {"never ran": 1}


@pytest.mark.parametrize(
    ("run_seconds", "factor", "limit"),
    [(1, 2, 900), (450, 2, 900), (451, 2, 1800), (3600, 2, 7200), (0, 2, 900), (100, None, None)],
)
def test_declared_limits_are_a_multiple_of_the_run_time_in_quarters_of_an_hour(
    run_seconds: float, factor: float | None, limit: float | None
) -> None:
    assert with_time_limit(TraceJob(0, run_seconds), factor).limit_seconds == limit


def test_a_limit_factor_never_exceeds_the_longest_limit() -> None:
    assert with_time_limit(TraceJob(0, 100), 1e308).limit_seconds == pytest.approx(MAX_DURATION_SECONDS, rel=1e-5)


def test_names_contain_no_character_that_controls_a_terminal_or_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(
        '{"submitted_at": 0, "run_seconds": 1, "user": "\\u001b[31mred", "project": "\\ud800"}\n'
    )
    (job,) = read_trace(tmp_path / "t.jsonl").jobs
    assert (job.user, job.project) == ("\N{REPLACEMENT CHARACTER}[31mred", "\N{REPLACEMENT CHARACTER}")


def test_a_limit_the_trace_has_is_kept() -> None:
    assert with_time_limit(TraceJob(0, 100, 500), 2).limit_seconds == 500


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("t.csv", "submitted_at,run_seconds\n0,1\n5,soon\n", "t.csv, line 3, column run_seconds: 'soon'"),
        ("t.csv", "submitted_at,run_seconds\n1507011851000,1\n", "divide milliseconds by 1000"),
        ("t.csv", "submitted_at,run_seconds\nyesterday,1\n", "neither seconds nor a time"),
        ("t.csv", "submitted_at,run_seconds\n0,-5\n", "column run_seconds: -5"),
        ("t.csv", "submitted_at,run_seconds,gpus\n0,1,nan\n", "column gpus: 'nan'"),
        ("t.csv", "submitted_at,run_seconds\n,1\n", "column submitted_at: is missing"),
        ("t.csv", "when,run_seconds\n0,1\n", "no column for submitted_at"),
        ("t.csv", "submitted_at,took\n0,1\n", "no column for run_seconds"),
        ("t.csv", "", "no column for submitted_at"),
        ("t.swf", "1 2 3\n", "t.swf, line 1: it has 3 fields, but the format has 18"),
        ("t.swf", "; only a comment\n", "no job to replay: the file is empty"),
        ("t.jsonl", "{\n", "t.jsonl, line 1: it is not JSON"),
        ("t.jsonl", "[1]\n", "is not a JSON object"),
        ("t.jsonl", '{"submitted_at": 1, "run_seconds": true}\n', "run_seconds: 'True' is not a number"),
        ("t.jsonl", f'{{"submitted_at": 1{"0" * 400}, "run_seconds": 1}}', "line 1, submitted_at: '1000"),
        ("t.txt", "hello", "The format of t.txt is unknown"),
    ],
)
def test_an_unreadable_trace_gives_the_place_and_a_hint(
    tmp_path: Path, name: str, content: str, says: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(Invalid) as caught:
        read_trace(tmp_path / name)
    assert says in caught.value.message
    assert caught.value.hint


def test_a_column_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(Invalid) as caught:
        read_trace(CASES / "table.csv", TraceReadOptions(columns={"gpus": ColumnSource("gpu")}))
    assert "'gpu'" in caught.value.message
    assert "num_gpus" in (caught.value.hint or "")


def test_a_mapped_column_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n0,x\n")
    with pytest.raises(Invalid, match="line 2, column b: 'x'"):
        read_trace(
            tmp_path / "t.csv", TraceReadOptions(columns=parse_column_map(["submitted_at=a,run_seconds=b"]))
        )


def test_bad_lines_are_counted_when_they_may_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("submitted_at,run_seconds\n0,1\n5,soon\n6,\ufffd\n7,1\n")
    trace = read_trace(tmp_path / "t.csv", TraceReadOptions(skip_bad_lines=True))
    assert len(trace.jobs) == 2
    assert trace.skipped == {"bad lines": 2}


def test_a_missing_or_broken_file_gives_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"submitted_at,run_seconds\n" * 100)[:30])
    with pytest.raises(Invalid, match="cannot be decompressed"):
        read_trace(tmp_path / "cut.csv.gz")


@pytest.mark.parametrize("text", ["gpus", "gpus=", "colour=red", "=x"])
def test_an_invalid_mapping_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        parse_column_map([text])


def test_synthetic_jobs_depend_only_on_the_seed() -> None:
    assert generate_trace(SyntheticTraceSpec(200, 7)) == generate_trace(SyntheticTraceSpec(200, 7))
    assert generate_trace(SyntheticTraceSpec(200, 7)) != generate_trace(SyntheticTraceSpec(200, 8))


def test_synthetic_jobs_have_the_requested_load() -> None:
    jobs = generate_trace(SyntheticTraceSpec(2000, 1, gpus=64, load=0.9)).jobs
    asked = sum(job.gpus * job.run_seconds for job in jobs)
    assert asked / (64 * jobs[-1].submitted_at) == pytest.approx(0.9, rel=1e-4)
    assert len(jobs) == 2000
    assert all(job.limit_seconds is not None and job.limit_seconds >= job.run_seconds for job in jobs)


@pytest.mark.parametrize(
    ("since", "until", "selected"),
    [
        (None, None, [0, 1, 2]),
        ("1d", None, [1, 2]),
        (None, "2d", [0, 1]),
        ("2017-10-04 06:24:11", "2017-10-05", [1]),
        ("2017-10-04T08:24:11+02:00", "36h", [1]),
        (str(int(STAMP) + 1), "1507098252", [1]),
        ("0d", "1d", [0]),
    ],
)
def test_a_period_selects_jobs_by_time_of_submission(
    since: str | None, until: str | None, selected: list[int]
) -> None:
    day = 86400.0
    trace = Trace("t", tuple(TraceJob(STAMP + n * day, 60) for n in range(3)), {"never ran": 1})
    found = select_submission_period(trace, since, until)
    assert found.jobs == tuple(trace.jobs[n] for n in selected)
    left_out = {"not selected": 3 - len(selected)} if len(selected) < 3 else {}
    assert found.skipped == {"never ran": 1} | left_out


@pytest.mark.parametrize(
    ("since", "until", "says"),
    [
        ("yesterday", None, "--from: 'yesterday' is not a time"),
        (None, "1.5.2017", "--to: '1.5.2017' is not a time"),
        ("2d", "1d", "--from is not before --to"),
        ("1d", None, "t: no job was submitted in this period. Its jobs were submitted from 2017-10-03 06:24:11"),
    ],
)
def test_a_period_that_selects_nothing_is_refused(since: str | None, until: str | None, says: str) -> None:
    with pytest.raises(Invalid) as caught:
        select_submission_period(Trace("t", (TraceJob(STAMP, 60),)), since, until)
    assert says in str(caught.value)
    assert caught.value.hint
