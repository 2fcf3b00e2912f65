"""Jobs that went to Slurm without us: read, made harmless, never touched."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.engines.slurm.command_output import (
    ArrayElementId,
    QueueDetails,
    SlurmJob,
    parse_job_names,
    random_delimiter,
)
from heliostat.engines.slurm.foreign_jobs import (
    ForeignJobs,
    make_foreign_job,
    parse_job_resources,
    sanitize_text,
    user_name,
)
from heliostat.models import TaskPlacement
from unit.engines.slurm.test_slurm_engine import BEGAN, ME, Site

TRES = "cpu=4,mem=1.50G,node=2,billing=4,gres/gpu=4"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.engine.close()


@pytest.mark.parametrize(
    ("tres", "found"),
    [
        (TRES, (4, 1536, 4)),
        ("cpu=1,mem=512K", (1, 0, 0)),
        ("cpu=2,mem=2T,gres/gpu:a100=2,gres/gpu=2", (2, 2097152, 2)),
        ("", (0, 0, 0)),
        ("cpu=x,mem=9Q,gres/gpu=-1,=,==", (0, 0, 0)),
    ],
)
def test_what_a_job_has_is_read_from_slurms_list(tres: str, found: tuple[int, int, int]) -> None:
    assert parse_job_resources(tres) == found


def test_elements_of_an_array_that_wait_are_one_row() -> None:
    class Named:
        def job_names(self) -> dict[int, str]:
            return {}

    def row(number: int, state: str) -> SlurmJob:
        return SlurmJob(number, state, ME, 0, 0, None, None, (), "Priority", QueueDetails(tres="cpu=1"))

    elements = [row(ArrayElementId.of(7, index), "PENDING") for index in range(3)]
    rows = [*elements, row(ArrayElementId.of(7, 9), "RUNNING"), row(8, "PENDING")]
    others = ForeignJobs(Named())  # type: ignore[arg-type]
    others.refresh({job.job_id: job for job in rows}, ())
    assert [(seen.id, seen.tasks, seen.cancel_command) for seen in others.jobs] == [
        ("slurm:7", 3, "scancel 7"),
        ("slurm:7_9", 1, "scancel 7_9"),
        ("slurm:8", 1, "scancel 8"),
    ]


@given(st.text())
def test_a_name_becomes_one_short_printable_line(text: str) -> None:
    name = sanitize_text(text)
    assert len(name) <= 64
    assert name.isprintable()


@given(st.dictionaries(st.integers(1, 10**9), st.text(), max_size=5))
def test_no_name_can_pass_for_another_job(names: dict[int, str]) -> None:
    mark = random_delimiter()
    said = "".join(f"{number}{mark}{name}{mark}\n" for number, name in names.items())
    assert dict(parse_job_names(said, mark)) == names


def test_a_user_nobody_knows_is_a_number() -> None:
    assert user_name(4_000_000_001) == "4000000001"
    assert user_name(2**70) == str(2**70)


def test_a_job_on_two_nodes_has_a_place_on_each() -> None:
    standing = QueueDetails(tres=TRES, submit_time="1700000000", time_limit="1:00:00")
    job = SlurmJob(ArrayElementId.of(7, 2), "RUNNING", ME, 0, 0, BEGAN, None, ("n1", "n2"), "None", standing)
    seen = make_foreign_job(job, "x", {"n1": (0, 1), "n2": (3,)})
    assert (seen.id, seen.cancel_command, seen.time_limit_seconds) == ("slurm:7_2", "scancel 7_2", 3600)
    assert seen.places == (TaskPlacement("n1", ("n1:0", "n1:1")), TaskPlacement("n2", ("n2:3",)))
    waiting = make_foreign_job(replace(job, state="PENDING", reason="Priority"), "x", {})
    assert (waiting.state, waiting.places, waiting.started_at) == ("pending", (), None)


def test_others_are_shown_while_we_have_no_job_and_ours_are_not_among_them(site: Site) -> None:
    site.engine.start([site.attempt()])
    site.wait_until(lambda: 100 in site.slurm.known, "ours is in Slurm")
    site.slurm.put(7, "")
    site.slurm.put(8, "", "COMPLETED")
    site.restart()
    site.engine.observe([site.attempt()])
    site.engine.forget_all_except(["1.1"])
    site.wait_until(site.engine.foreign_jobs, "they are shown")
    assert [(job.id, job.name) for job in site.engine.foreign_jobs()] == [("slurm:7", "a [2Jb c")]
    assert site.slurm.cancelled == []
