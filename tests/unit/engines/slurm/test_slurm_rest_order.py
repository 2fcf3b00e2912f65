"""The words of sbatch and what slurmrestd is told are one record. Golden cases as in test_slurm_script.py."""

import json
import os
from dataclasses import replace

import pytest

from heliostat.engines.slurm.arrays import Chunk, array_argv
from heliostat.engines.slurm.rest_order import Untold, order_of
from heliostat.engines.slurm.script import Site, sbatch_argv
from heliostat.engines.slurm.terms import Place, Terms
from unit.engines.slurm.test_slurm_script import ANN, CASES, NAMES, attempt_of, load, paths_in

REST_CASES = CASES.parent / "slurm_rest"


@pytest.mark.parametrize("name", NAMES)
def test_slurmrestd_is_told_exactly_this(name: str) -> None:
    case, expected = load(name), REST_CASES / f"{name}.json"
    paths = paths_in(case.get("folder", "/srv/jobs/12"), case.get("workdir"))
    order = order_of(sbatch_argv(attempt_of(case), ANN, paths, Site("ab12", as_root=True)))
    text = json.dumps(order.job, indent=1, sort_keys=True) + "\n"
    if os.environ.get("UPDATE_CASES"):
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")
    assert order.uid == ANN.uid


def test_everything_a_job_can_ask_for_has_a_word() -> None:
    case = {
        "command": ["true"],
        "gpus": 2,
        "gpu_type": "a100",
        "time_limit_seconds": 600,
        "priority_class": "urgent",
        "placement": {"tasks": 1, "exclusive": True, "labels": ["fast", "big"]},
    }
    terms = Terms(partition="gpu", labels={"big": Place("bigmem", ("ssd",))})
    site = Site("ab12", as_root=False, terms=terms, account="vision")
    order = order_of(sbatch_argv(attempt_of(case), ANN, paths_in("/j"), site))
    told = {key: order.job[key] for key in ("exclusive", "constraints", "partition", "qos", "account", "gres")}
    assert told == {
        "exclusive": "exclusive",
        "constraints": "fast&ssd",
        "partition": "bigmem",
        "qos": "urgent",
        "account": "vision",
        "gres": "gpu:a100:2",
    }
    assert order.uid is None


def test_an_array_keeps_its_indexes_its_limit_and_what_it_waits_for() -> None:
    attempt = attempt_of({"command": ["true"]})
    first, second = (
        replace(attempt, job=replace(attempt.job, array_id=12, array_index=index, array_limit=4))
        for index in (0, 7)
    )
    waits = ["--dependency=afterany:99,aftercorr:7", "--kill-on-invalid-dep=no", "--begin=uts1767225600"]
    order = order_of([*array_argv(Chunk({0: first, 7: second}), ANN, Site("ab12", as_root=True)), *waits])
    assert (order.job["array"], order.job["dependency"]) == ("0,7%4", "afterany:99,aftercorr:7")
    assert (order.job["kill_on_invalid_dependency"], order.job["begin_time"]) == ("no", "uts1767225600")


@pytest.mark.parametrize("words", [["--nice=5"], ["script.sh"], ["--time=1-00"], ["--mem=5G"]])
def test_what_has_no_word_is_refused_and_not_left_out(words: list[str]) -> None:
    with pytest.raises(Untold):
        order_of(["sbatch", "--parsable", *words])
