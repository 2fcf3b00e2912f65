"""Why jobs wait in Slurm, and where in its line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.engines.slurm.command_output import QueueDetails, SlurmJob
from heliostat.engines.slurm.explain import QueueOrder, explain_reason

CASES = Path(__file__).parents[3] / "cases" / "slurm" / "reasons.tsv"
GOLDEN = [tuple(line.split("\t")) for line in CASES.read_text().splitlines()]


def waiting(number: int, priority: int, partition: str = "main", reason: str = "Priority") -> SlurmJob:
    standing = QueueDetails(priority=priority, partition=partition)
    return SlurmJob(number, "PENDING", 0, 0, 0, None, None, (), reason, standing)


@pytest.mark.parametrize(("said", "kind", "words"), GOLDEN)
def test_every_reason_of_slurm_has_a_sentence_of_ours(said: str, kind: str, words: str) -> None:
    reason = explain_reason(said)
    assert (reason.kind, reason.message) == (kind, words)


@given(st.text(max_size=300))
def test_a_reason_nobody_knows_is_one_harmless_line(said: str) -> None:
    words = explain_reason(said).message
    assert words.isprintable()
    assert len(words) < 250


def test_each_partition_has_a_line_of_its_own_and_who_is_held_stands_in_none() -> None:
    jobs = [
        waiting(1, 5),
        waiting(2, 9),
        waiting(3, 5),
        waiting(4, 1, "long"),
        waiting(5, 0, reason="JobHeldUser"),
    ]
    line = QueueOrder({job.job_id: job for job in jobs})
    found = {job.job_id: line.wait_reason(job.job_id) for job in jobs}
    assert {number: (one.position, one.queue_length) for number, one in found.items() if one} == {
        1: (2, 3),
        2: (1, 3),
        3: (3, 3),
        4: (1, 1),
        5: (None, None),
    }
    assert line.wait_reason(6) is None


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["a", "b"])), max_size=30))
def test_positions_are_one_to_all_and_the_higher_priority_is_ahead(wishes: list[tuple[int, str]]) -> None:
    jobs = {number: waiting(number, *wish) for number, wish in enumerate(wishes, 1)}
    line = QueueOrder(jobs)
    for partition in ("a", "b"):
        there = [
            job for job in jobs.values() if job.queue_details.partition == partition and job.queue_details.priority
        ]
        seen = sorted((line.wait_reason(job.job_id).position, -job.queue_details.priority) for job in there)  # type: ignore[union-attr]
        assert [position for position, _ in seen] == list(range(1, len(there) + 1))
        assert [priority for _, priority in seen] == sorted(priority for _, priority in seen)
