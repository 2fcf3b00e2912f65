"""What is taken out of Slurm when nobody wants it: never what another of ours has by now."""

from types import SimpleNamespace
from typing import cast

import pytest

from heliostat.engines.slurm.batch_script import array_comment, attempt_comment
from heliostat.engines.slurm.client import SlurmClient
from heliostat.engines.slurm.command_output import ArrayElementId
from heliostat.engines.slurm.job_lookup import JobLookup
from heliostat.engines.slurm.journal import ArrayElement, JournalEntry

UID, ELEMENT = 1001, ArrayElementId.of(57, 3)


def orphans(comments: dict[int, str], attempt_id: str, entry: JournalEntry) -> list[int]:
    """Of the jobs that Slurm has, all of one user, by their comments."""
    client = SimpleNamespace(
        job_comments=lambda uid: list(comments.items()),
        jobs=lambda: {number: SimpleNamespace(uid=UID) for number in comments},
    )
    return JobLookup(cast(SlurmClient, client), "here").find_orphans({attempt_id: entry})


@pytest.mark.parametrize(
    ("comments", "entry"),
    [
        ({57: attempt_comment("here", "12.2")}, JournalEntry(UID, 57)),
        ({57: attempt_comment("here", "12.2")}, JournalEntry(UID)),  # the answer was lost
        ({57: "what its user wrote there"}, JournalEntry(UID, 57)),
        ({57: attempt_comment("here", "12.1")}, JournalEntry(UID, 57, submitted_as_attempt=1)),  # requeued
        ({57: attempt_comment("elsewhere", "12.2")}, JournalEntry(UID, 57)),
    ],
)
def test_what_is_its_own_goes(comments: dict[int, str], entry: JournalEntry) -> None:
    assert orphans(comments, "12.2", entry) == [57]


@pytest.mark.parametrize("element", [ArrayElement("9.1", 3), None])
def test_an_element_of_an_array_goes_alone(element: ArrayElement | None) -> None:
    """Earlier versions noted nothing of its array once its number was known."""
    comments = {ELEMENT: array_comment("here", "9.1"), ArrayElementId.of(57, 4): array_comment("here", "9.1")}
    assert orphans(comments, "12.1", JournalEntry(UID, ELEMENT, element)) == [ELEMENT]


@pytest.mark.parametrize(
    "comments",
    [
        {57: attempt_comment("here", "30.1")},
        {57: array_comment("here", "30.1")},
        {57: attempt_comment("here", "12.3")},
    ],
)
def test_a_slurm_that_lost_its_state_gives_the_number_to_another_which_stays(comments: dict[int, str]) -> None:
    assert orphans(comments, "12.2", JournalEntry(UID, 57)) == []


def test_so_does_an_element_whose_array_is_another_by_now() -> None:
    comments = {ELEMENT: array_comment("here", "30.1")}
    assert orphans(comments, "12.1", JournalEntry(UID, ELEMENT, ArrayElement("9.1", 3))) == []
