"""Jobs that are no array but ask for the same: one submission for all, and nobody notices."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from heliostat.engines.slurm.arrays import (
    ArrayScriptContext,
    SubmissionChunk,
    array_sbatch_argv,
    group_into_chunks,
    render_array_script,
)
from heliostat.engines.slurm.batch_script import SubmissionContext as SlurmSite
from heliostat.engines.slurm.client import SlurmRefused
from heliostat.models import Attempt, EndCause, JobSpec, PlacementRequest
from unit.engines.slurm.test_slurm_arrays import ARRAY_CASES, HOSTILE_FOLDER, dispatched, options_of
from unit.engines.slurm.test_slurm_engine import Site
from unit.engines.slurm.test_slurm_script import ANN, AROUND, NAMES, attempt_of, load


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.engine.close()


def likes(site: Site, *client: Sequence[str]) -> list[Attempt]:
    return [site.attempt(1 + place, spec=JobSpec(tuple(words))) for place, words in enumerate(client)]


def together(attempts: Sequence[Attempt]) -> list[list[str]]:
    return [[attempt.id for attempt in chunk.attempts] for chunk in group_into_chunks(attempts)]


def test_jobs_that_run_different_things_but_ask_for_the_same_are_one_submission(site: Site) -> None:
    attempts = likes(site, ["true"], ["false"], ["echo", "1"])
    site.engine.start(attempts)
    numbers = dispatched(site, attempts)
    assert [str(number) for number in numbers] == ["100_0", "100_1", "100_2"]
    assert [options_of(argv).get("--array") for argv in site.slurm.submitted] == ["0-2"]


@pytest.mark.parametrize(
    "other",
    [
        {"name": "y"},
        {"project": "q"},
        {"time_limit_seconds": 60},
        {"priority_class": "urgent"},
        {"environment": "ab"},
        {"placement": PlacementRequest(tasks=2)},
        {"spec": JobSpec(("true",), env={"A": "1"})},
        {"spec": JobSpec(("true",), workdir="/srv")},
        {"spec": JobSpec(("true",), image="debian")},
        {"spec": JobSpec(("true",), script="#!/bin/sh\n")},
        {"spec": JobSpec(("true",), template="mpi")},
    ],
)
def test_who_asks_for_something_else_goes_alone(site: Site, other: dict[str, object]) -> None:
    assert together([site.attempt(1), site.attempt(2), site.attempt(3, **other)]) == [["1.1", "2.1"], ["3.1"]]


def test_containers_and_gangs_go_alone_also_when_they_are_alike(site: Site) -> None:
    spec, placement = JobSpec(("true",), image="debian"), PlacementRequest(tasks=2)
    assert together([site.attempt(1, spec=spec), site.attempt(2, spec=spec)]) == [["1.1"], ["2.1"]]
    gangs = [site.attempt(1, placement=placement), site.attempt(2, placement=placement)]
    assert together(gangs) == [["1.1"], ["2.1"]]


def test_no_script_grows_beyond_measure(site: Site) -> None:
    long = "x" * 90_000
    assert together(likes(site, [long], [long], [long])) == [["1.1", "2.1"]]  # the third comes with the next round
    assert together(likes(site, [long * 3], ["true"])) == [["1.1"]]
    assert len(together(likes(site, *[["true"]] * 400))[0]) == 250


def test_what_slurm_refuses_together_is_tried_one_by_one(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    submit = site.slurm.submit

    def only_single_jobs(argv: Sequence[str], script: str) -> int:
        if "--array" in options_of(list(argv)) or "third" in script:
            raise SlurmRefused("Invalid qos specification")
        return submit(argv, script)

    monkeypatch.setattr(site.slurm, "submit", only_single_jobs)
    attempts = likes(site, ["first"], ["second"], ["third"])
    site.engine.start(attempts)
    site.wait_until(site.ends, "the third is refused")
    assert dispatched(site, attempts[:2]) == [100, 101]
    assert [(end.attempt_id, end.cause) for end in site.ends()] == [("3.1", EndCause.REFUSED)]


def test_those_whose_answer_was_lost_are_found_and_not_handed_over_again(site: Site) -> None:
    site.slurm.loses_answers = True
    attempts = likes(site, ["true"], ["false"], ["echo"])
    site.engine.start(attempts)
    assert [str(number) for number in dispatched(site, attempts)] == ["100_0", "100_1", "100_2"]
    assert len(site.slurm.submitted) == 1


@pytest.mark.parametrize("name", [name for name in NAMES if "placement" not in load(name)])
@pytest.mark.parametrize("with_script", [False, True])
def test_a_real_shell_runs_what_is_each_ones_own(name: str, with_script: bool, tmp_path: Path) -> None:
    case, jobs = load(name), tmp_path / HOSTILE_FOLDER
    told = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()])); sys.exit(3)"
    own = tuple(case["command"] if with_script else ["python3", "-c", told, *case["command"]])
    script = "there is a copy of it" if with_script else None
    first = attempt_of(case)
    attempts = {
        index: replace(
            first, id=f"{number}.2", job=replace(first.job, id=number, attempt=2, spec=JobSpec(words, script))
        )
        for index, number, words in ((0, 40, ("false",)), (1, 41, own), (2, 42, ("false", *own)))
    }
    folder = jobs / "41"
    (folder / "work").mkdir(parents=True)
    (folder / "2.script").write_text(f"#!/usr/bin/env python3\n{told}\n")
    (folder / "2.script").chmod(0o700)
    (folder / "2.receipt").touch()
    text = render_array_script(SubmissionChunk(attempts), ANN, AROUND, ArrayScriptContext(str(jobs), "ab12"))
    given = {
        "SLURM_JOB_ID": "77",
        "SLURM_ARRAY_JOB_ID": "70",
        "SLURM_ARRAY_TASK_ID": "1",
        "SLURM_ARRAY_TASK_COUNT": "3",
        "SLURMD_NODENAME": "n1",
    }
    done = subprocess.run(["sh"], input=text.encode(), env=given, capture_output=True, cwd="/", check=False)
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"")
    words, environment, workdir = json.loads((folder / "2.stdout").read_text())
    assert (words, workdir) == (case["command"], str(folder / "work"))
    assert environment["HELIOSTAT_ATTEMPT_ID"] == "41.2"
    assert not [name for name in environment if name.startswith(("SLURM_ARRAY", "HELIOSTAT_ARRAY"))]
    assert (folder / "2.receipt").read_text() == "begun 70_1 0 n1\nended 70_1 0 3\n"


def test_their_words_and_their_script_are_exactly_these() -> None:
    first, expected = attempt_of(load("hostile_words")), ARRAY_CASES / "likes.txt"
    attempts = {
        index: replace(first, id=f"{number}.1", job=replace(first.job, id=number, spec=JobSpec(words)))
        for index, number, words in ((0, 12, first.job.spec.command), (1, 13, ("echo", "it's", "$(id)")))
    }
    argv = array_sbatch_argv(SubmissionChunk(attempts), ANN, SlurmSite("ab12", runs_as_root=True))
    script = render_array_script(
        SubmissionChunk(attempts), ANN, AROUND, ArrayScriptContext("/srv/it's/jobs", "ab12")
    )
    text = "\n".join(map(repr, argv)) + "\n---\n" + script
    if os.environ.get("UPDATE_CASES"):
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")
