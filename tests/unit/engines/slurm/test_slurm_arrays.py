"""Arrays: one submission for many, each of them a job of its own, none doubled and none lost."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.engines.slurm.arrays import (
    ArrayScriptContext,
    SubmissionChunk,
    array_sbatch_argv,
    format_index_ranges,
    group_into_chunks,
    render_array_script,
)
from heliostat.engines.slurm.batch_script import SubmissionContext as SlurmSite
from heliostat.engines.slurm.batch_script import array_comment
from heliostat.engines.slurm.client import SlurmRefused
from heliostat.engines.slurm.command_output import ArrayElementId, expand_host_list, parse_job_id
from heliostat.engines.slurm.journal import ArrayElement, JournalEntry
from heliostat.models import Attempt, AttemptEnded, AttemptStarted, EndCause, JobSpec
from unit.engines.slurm.test_slurm_engine import ME, Site
from unit.engines.slurm.test_slurm_script import ANN, AROUND, CASES, NAMES, attempt_of, load

ARRAY_CASES = CASES.parent / "slurm_arrays"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.engine.close()


def elements(site: Site, count: int, **fields: Any) -> list[Attempt]:
    return [site.attempt(1 + index, array_id=7, array_index=index, **fields) for index in range(count)]


def dispatched(site: Site, attempts: list[Attempt]) -> list[int]:
    """The numbers Slurm has for them."""

    def numbers() -> list[int]:
        journal = [site.journal.find(attempt.id) for attempt in attempts]
        return [entry.slurm_job_id for entry in journal if entry and entry.slurm_job_id is not None]

    site.wait_until(lambda: len(numbers()) == len(attempts), "all have a number")
    return numbers()


def options_of(argv: list[str]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in argv if "=" in word)


def test_an_array_is_one_submission_and_each_element_is_told_of_for_itself(site: Site) -> None:
    attempts = elements(site, 5, array_limit=2)
    site.engine.start(attempts)
    numbers = dispatched(site, attempts)
    assert [str(number) for number in numbers] == ["100_0", "100_1", "100_2", "100_3", "100_4"]
    assert options_of(site.slurm.submitted[0])["--array"] == "0-4%2"
    site.slurm.run(numbers[3])
    site.slurm.end(numbers[1])
    site.wait_until(site.ends, "an end is told")
    assert sorted(one.attempt_id for one in site.reports if isinstance(one, AttemptStarted)) == ["2.1", "4.1"]
    assert [end.attempt_id for end in site.ends()] == ["2.1"]
    assert len(site.slurm.submitted) == 1


def test_one_element_alone_is_submitted_as_any_other_job(site: Site) -> None:
    site.engine.start(elements(site, 1))
    site.wait_until(lambda: site.journal.find("1.1") == JournalEntry(ME, 100), "its number is noted")


def test_an_array_whose_answer_was_lost_is_found_and_not_handed_over_again(site: Site) -> None:
    site.slurm.loses_answers = True
    attempts = elements(site, 4)
    site.engine.start(attempts)
    assert [str(number) for number in dispatched(site, attempts)] == ["100_0", "100_1", "100_2", "100_3"]
    assert len(site.slurm.submitted) == 1


def test_a_server_killed_before_the_submission_hands_over_nothing_twice(site: Site) -> None:
    attempts = elements(site, 3)
    for index, attempt in enumerate(attempts[:2]):  # the third was not even noted
        site.journal.put(attempt.id, JournalEntry(ME, element=ArrayElement("1.1", index)))
    seen = site.engine.observe(attempts)
    assert [(one.attempt_id, one.cause) for one in seen if isinstance(one, AttemptEnded)] == [
        (attempt.id, EndCause.NOT_STARTED) for attempt in attempts
    ]
    site.engine.start(attempts)
    assert site.slurm.submitted == []


def test_a_server_killed_after_the_submission_finds_every_element(site: Site) -> None:
    attempts = elements(site, 3)
    for index, attempt in enumerate(attempts):
        site.journal.put(attempt.id, JournalEntry(ME, element=ArrayElement("1.1", index)))
        site.slurm.put(ArrayElementId.of(55, index), array_comment(site.engine.instance, "1.1"))
    site.slurm.run(ArrayElementId.of(55, 1))
    (seen,) = site.engine.observe(attempts)
    assert (type(seen), seen.attempt_id) == (AttemptStarted, "2.1")
    assert site.journal.find("3.1") == JournalEntry(ME, ArrayElementId.of(55, 2), ArrayElement("1.1", 2))


def test_an_array_of_another_user_that_bears_our_mark_is_not_ours(site: Site) -> None:
    attempts = elements(site, 2)
    for index, attempt in enumerate(attempts):
        site.journal.put(attempt.id, JournalEntry(ME, element=ArrayElement("1.1", index)))
        mark = array_comment(site.engine.instance, "1.1")
        site.slurm.put(ArrayElementId.of(55, index), mark, uid=ME + 1)
    seen = site.engine.observe(attempts)
    assert {one.cause for one in seen if isinstance(one, AttemptEnded)} == {EndCause.NOT_STARTED}


def test_elements_nobody_wants_any_more_are_taken_out_after_a_restart(site: Site) -> None:
    attempts = elements(site, 3)
    site.engine.start(attempts)
    numbers = dispatched(site, attempts)
    site.restart()
    site.engine.observe(attempts[1:])
    site.engine.forget_all_except([attempt.id for attempt in attempts[1:]])
    site.wait_until(lambda: site.slurm.cancelled == numbers[:1], "the first is cancelled")


@pytest.mark.parametrize("by_us", [True, False])
def test_an_element_cancelled_while_it_waits_leaves_no_trace_in_slurm_and_is_over(site: Site, by_us: bool) -> None:
    attempts = elements(site, 3)
    site.engine.start(attempts)
    numbers = dispatched(site, attempts)
    site.wait_until(lambda: site.engine.wait_reason("2.1"), "it was seen waiting")
    if by_us:
        site.engine.stop(attempts[1], 0)
        site.wait_until(lambda: numbers[1] in site.slurm.cancelled, "it is cancelled")
    del site.slurm.known[numbers[1]]
    site.wait_until(site.ends, "its end is told")
    assert [(end.attempt_id, end.cause) for end in site.ends()] == [("2.1", EndCause.STOPPED)]


def test_a_part_that_slurm_refuses_ends_with_its_words_for_each(site: Site) -> None:
    site.slurm.refuses = "Invalid qos specification"
    site.engine.start(elements(site, 3))
    site.wait_until(lambda: len(site.ends()) == 3, "all ends are told")
    assert {end.cause for end in site.ends()} == {EndCause.REFUSED}


def test_more_than_slurm_takes_at_once_go_in_parts_that_keep_the_limit_together(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.engine.close()
    site.slurm.largest_array = 4
    site.engine = site.new_engine()
    attempts = elements(site, 8, array_limit=2)
    site.engine.start(attempts)
    dispatched(site, attempts)
    site.engine.close()
    said = [options_of(argv) for argv in site.slurm.submitted]
    assert [one["--array"] for one in said] == ["0-2%2", "0-2%2", "0-1%2"]
    assert [one.get("--dependency") for one in said] == [None, "afterany:100", "afterany:101"]


def test_a_part_goes_alone_when_slurm_has_forgotten_the_part_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path)
    site.engine.close()
    site.slurm.largest_array = 4
    site.engine = site.new_engine()
    submit = site.slurm.submit

    def forgetful(argv: Sequence[str], script: str) -> int:
        if any(word.startswith("--dependency=") for word in argv):
            raise SlurmRefused("Job dependency problem")
        return submit(argv, script)

    monkeypatch.setattr(site.slurm, "submit", forgetful)
    attempts = elements(site, 6, array_limit=2)
    site.engine.start(attempts)
    dispatched(site, attempts)
    site.engine.close()
    assert [options_of(argv)["--array"] for argv in site.slurm.submitted] == ["0-2%2", "0-2%2"]


def test_only_what_asks_for_the_same_goes_together(site: Site) -> None:
    first, second, third = elements(site, 3)
    other = replace(third, job=replace(third.job, time_limit_seconds=60))
    alone = site.attempt(9)
    assert [[one.id for one in chunk.attempts] for chunk in group_into_chunks([first, second, other, alone])] == [
        ["1.1", "2.1"],
        ["3.1"],
        ["9.1"],
    ]


def test_indexes_slurm_would_not_take_are_replaced_by_places() -> None:
    attempts = [attempt_of({"command": ["true"]}) for _ in range(2)]
    far = [
        replace(one, id=f"{number}.1", job=replace(one.job, array_id=1, array_index=index))
        for number, (one, index) in enumerate(zip(attempts, (5, 70_000), strict=True))
    ]
    (chunk,) = group_into_chunks(far)
    assert list(chunk.elements) == [0, 1]


@given(st.sets(st.integers(0, 500), min_size=1))
def test_ranges_name_every_index_once(indexes: set[int]) -> None:
    assert sorted(int(one) for one in expand_host_list(f"[{format_index_ranges(list(indexes))}]")) == sorted(
        indexes
    )


@given(st.integers(1, 2**32), st.integers(0, 4_000_000))
def test_an_elements_number_is_read_as_it_is_written_and_is_no_other(array: int, index: int) -> None:
    number = ArrayElementId.of(array, index)
    assert parse_job_id(str(number)) == number
    assert (f"{number}", number.array_job_id, number.index) == (f"{array}_{index}", array, index)
    assert number not in {array, ArrayElementId.of(array, index + 1), ArrayElementId.of(array + 1, index)}


HOSTILE_FOLDER = "a $(id) 'q' \"d\" ; % é\n-x"


@pytest.mark.parametrize("name", [name for name in NAMES if "placement" not in load(name)])
@pytest.mark.parametrize("with_script", [False, True])
def test_a_real_shell_passes_on_what_is_each_elements_own_and_nothing_else(
    name: str, with_script: bool, tmp_path: Path
) -> None:
    case, jobs = load(name), tmp_path / HOSTILE_FOLDER
    told = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()])); sys.exit(3)"
    spec = JobSpec(
        tuple(case["command"] if with_script else ["python3", "-c", told, *case["command"]]),
        "there is a copy of it" if with_script else None,
        None,
        case.get("env", {}),
    )
    first = attempt_of(case)
    attempts = {
        index: replace(
            first,
            id=f"{number}.2",
            job=replace(first.job, id=number, array_id=1, array_index=index, attempt=2, spec=spec),
        )
        for number, index in ((40, 3), (41, 8))
    }
    folder = jobs / "41"
    (folder / "work").mkdir(parents=True)
    (folder / "2.script").write_text(f"#!/usr/bin/env python3\n{told}\n")
    (folder / "2.script").chmod(0o700)
    (folder / "2.receipt").touch()
    script = render_array_script(SubmissionChunk(attempts), ANN, AROUND, ArrayScriptContext(str(jobs), "ab12"))
    given = {"SLURM_JOB_ID": "77", "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "8", "SLURMD_NODENAME": "n1"}
    done = subprocess.run(["sh"], input=script.encode(), env=given, capture_output=True, cwd="/", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"")
    words, environment, workdir = json.loads((folder / "2.stdout").read_text())
    assert (words, workdir) == (case["command"], str(folder / "work"))
    assert case.get("env", {}).items() <= environment.items()
    own = {
        "HELIOSTAT_JOB_ID": "41",
        "HELIOSTAT_ATTEMPT": "2",
        "HELIOSTAT_ATTEMPT_ID": "41.2",
        "HELIOSTAT_ARRAY_INDEX": "8",
        "HELIOSTAT_MARK": "ab12-41.2",
        "HELIOSTAT_CHECKPOINT_DIR": str(folder / "checkpoints"),
    }
    assert own.items() <= environment.items()
    assert (folder / "2.receipt").read_text() == "begun 70_8 0 n1\nended 70_8 0 3\n"
    assert (folder / "2.stderr").read_text() == ""


@pytest.mark.parametrize("name", ["plain", "hostile_words", "gang"])
def test_the_words_and_the_script_of_an_array_are_exactly_these(name: str) -> None:
    first, expected = attempt_of(load(name)), ARRAY_CASES / f"{name}.txt"
    attempts = {
        index: replace(
            first,
            id=f"{number}.1",
            job=replace(first.job, id=number, array_id=4, array_index=index, array_limit=2),
        )
        for number, index in ((12, 0), (13, 1), (14, 5))
    }
    site = SlurmSite("ab12", runs_as_root=True)
    argv = array_sbatch_argv(SubmissionChunk(attempts), ANN, site)
    script = render_array_script(
        SubmissionChunk(attempts), ANN, AROUND, ArrayScriptContext("/srv/it's/jobs", "ab12")
    )
    text = "\n".join(map(repr, argv)) + "\n---\n" + script
    if os.environ.get("UPDATE_CASES"):
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")


def test_an_element_slurm_has_made_up_runs_nothing(tmp_path: Path) -> None:
    first = attempt_of({"command": ["touch", str(tmp_path / "ran")]})
    chunk = SubmissionChunk({0: replace(first, job=replace(first.job, array_id=1, array_index=0))})
    script = render_array_script(chunk, ANN, AROUND, ArrayScriptContext(str(tmp_path), "ab12"))
    done = subprocess.run(["sh"], input=script.encode(), env={"SLURM_ARRAY_TASK_ID": "1"}, cwd="/", check=False)
    assert (done.returncode, list(tmp_path.iterdir())) == (125, [])


def test_of_an_array_larger_than_slurm_takes_from_one_user_as_many_as_it_takes_go_ahead(site: Site) -> None:
    site.slurm.most = 5
    attempts = elements(site, 12)
    site.engine.start(attempts)
    dispatched(site, attempts[:5])
    site.wait_until(lambda: "job submit limit" in str(site.engine.wait_reason("12.1")), "the others say why")
    assert len(site.slurm.known) == 5
    site.slurm.most = 100
    assert len({*dispatched(site, attempts)}) == 12
    assert site.ends() == []


def test_parts_of_a_limited_array_run_one_after_the_other_also_if_the_last_is_one_element(site: Site) -> None:
    site.slurm.most = 2
    attempts = elements(site, 3, array_limit=1)
    site.engine.start(attempts)
    dispatched(site, attempts[:2])
    site.slurm.most = 100
    dispatched(site, attempts)
    options = [options_of(argv) for argv in site.slurm.submitted]
    assert [one["--array"].partition("%")[2] for one in options] == ["1"] * len(options)
    before = [None, *(f"afterany:{100 + place}" for place in range(len(options) - 1))]
    assert [one.get("--dependency") for one in options] == before


def test_jobs_that_ask_for_the_same_go_ahead_as_far_as_slurm_takes_them(site: Site) -> None:
    site.slurm.most = 3
    attempts = [site.attempt(1 + place) for place in range(8)]
    site.engine.start(attempts)
    dispatched(site, attempts[:3])
    site.slurm.most = 100
    dispatched(site, attempts)
    assert site.ends() == []
