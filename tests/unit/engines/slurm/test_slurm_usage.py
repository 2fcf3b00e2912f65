"""What Slurm's accounting says of jobs, as records; and what is kept until it says it."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.engines.slurm.command_output import gpus_in_tres, parse_duration_seconds, parse_size_mib, parse_tres
from heliostat.engines.slurm.journal import JournalEntry, SubmissionJournal
from heliostat.engines.slurm.usage import (
    AccountedUsage,
    PendingUsage,
    PendingUsageFolder,
    parse_node_loads,
    parse_sacct_usage,
)
from heliostat.models import AttemptUsage, UsageSample

SAID = """\
1|1000|COMPLETED|5|00:02.620||||billing=2,cpu=2,gres/gpu=2,mem=500M,node=1
1.batch||COMPLETED|5|00:02.620|219768K|219768K|1|cpu=2,gres/gpu=2,mem=500M,node=1
2|0|FAILED|4|00:00.020||||billing=2,cpu=2,mem=200M,node=1
2.batch||FAILED|4|00:00.016|10800K|10800K|1|cpu=2,mem=200M,node=1
2.0||OUT_OF_MEMORY|4|00:00.004|1652M|1648M|2|cpu=2,mem=200M,node=1
4|0|RUNNING|6|00:00:00||||billing=1,cpu=1,mem=100M,node=1
5|7|CANCELLED by 7|0|00:00:00||||
6|7|COMPLETED|60|1-00:00:00||||cpu=1
6.batch||RUNNING|60|00:00:00|||1|cpu=1
"""


def test_memory_is_that_of_the_largest_step_with_all_its_tasks_and_gpus_count_for_as_long_as_they_were_held() -> (
    None
):
    used = parse_sacct_usage(SAID)
    assert used[1] == AccountedUsage(1000, AttemptUsage(5.0, 2.62, 219768 / 1024, 10.0), True)
    assert used[2] == AccountedUsage(0, AttemptUsage(4.0, 0.02, 3296.0, None, True), True)
    assert used[4] == AccountedUsage(0, AttemptUsage(6.0), False)
    assert used[5] == AccountedUsage(7, AttemptUsage(0.0), True)
    assert used[6] == AccountedUsage(7, AttemptUsage(60.0, 86400.0), False)


@given(st.text())
def test_no_text_makes_the_reader_of_uses_fail(text: str) -> None:
    parse_sacct_usage(text)
    parse_node_loads(text)
    gpus_in_tres(parse_tres(text))
    parse_size_mib(text)
    parse_duration_seconds(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:02.620", 2.62), ("01:02:03", 3723.0), ("2-00:00:01", 172801.0), ("INVALID", None), ("", None)],
)
def test_spans_of_time_are_read(text: str, seconds: float | None) -> None:
    assert parse_duration_seconds(text) == seconds


def test_gpus_are_counted_with_their_type_where_it_is_said_and_there_is_one() -> None:
    assert gpus_in_tres(parse_tres("cpu=1,gres/gpu=2")) == (2, None)
    assert gpus_in_tres(parse_tres("gres/gpu=4,gres/gpu:a100=4")) == (4, "a100")
    assert gpus_in_tres(parse_tres("gres/gpu:a100=1,gres/gpu:t4=2")) == (3, None)
    assert gpus_in_tres(parse_tres("gres/gpu=2,gres/gpu:1g.10gb=2")) == (2, "1g.10gb")
    assert gpus_in_tres(parse_tres("")) == (0, None)


def test_a_node_is_busy_as_far_as_it_says() -> None:
    said = "n1|16|8.41|16000|4000|\nn2|2|9.5|16000|18378|\nn3|16|N/A|16000|N/A|\n"
    assert parse_node_loads(said) == {
        "n1": UsageSample(8.41, 12000.0),
        "n2": UsageSample(2.0, 0.0),
        "n3": UsageSample(),
    }


def test_what_a_forgotten_attempt_used_is_owed_until_it_is_noted_also_after_a_restart(tmp_path: Path) -> None:
    journal, owed = SubmissionJournal(tmp_path), PendingUsageFolder(tmp_path)
    journal.put("12.1", JournalEntry(1000, 4711))
    journal.put("13.1", JournalEntry(1000))
    journal.put("14.1", JournalEntry(None))
    owed.add(["12.1", "13.1", "14.1", "15.1"])
    assert (list(journal.attempt_ids()), owed.list_oldest(0)) == ([], [])
    (one,) = PendingUsageFolder(tmp_path).list_oldest(10)
    assert (one.attempt_id, one.uid, one.slurm_job_id) == ("12.1", 1000, 4711)
    owed.remove(["12.1"])
    assert os.listdir(tmp_path) == []


def test_the_accounting_is_asked_again_until_it_has_caught_up_and_never_believed_about_somebody_else() -> None:
    owed, usage = PendingUsage("12.1", 1000, 4711, waiting_since=0.0), AttemptUsage(60.0)
    assert owed.settle(None, 60.0) == (False, None)
    assert owed.settle(AccountedUsage(1000, usage, False), 60.0) == (False, usage)
    assert owed.settle(AccountedUsage(1000, usage, True), 60.0) == (True, usage)
    assert owed.settle(AccountedUsage(1000, usage, False), 3600.0) == (True, usage)
    assert owed.settle(AccountedUsage(1001, usage, True), 60.0) == (False, None)
    assert owed.settle(None, 3 * 86400.0) == (True, None)
