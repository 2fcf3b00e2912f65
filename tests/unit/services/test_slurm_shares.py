"""Slurm's count on our tree of departments, projects and users."""

from collections.abc import Sequence

import pytest

from heliostat.engines.accounts import AccountUse
from heliostat.engines.slurm.accounts.sync import SlurmAccountSync
from heliostat.models import Department, Project
from heliostat.scheduling.accounts import Accounts
from heliostat.services.accounts.shares import ELSEWHERE, slurm_standing

ACCOUNTS = Accounts(
    departments={"imaging": Department("imaging", 3), "new": Department("new")},
    projects={"tumours": Project("tumours", "imaging", share=2), "hearts": Project("hearts", "imaging")},
)
USED = (
    AccountUse("root", "", "", 0.0, 800, 10),
    AccountUse("root", "root", "root", 0.1, 0, 0),
    AccountUse("_imaging", "", "root", 0.6, 600, 8),
    AccountUse("tumours", "", "_imaging", 0.5, 600, 8),
    AccountUse("tumours", "anna", "tumours", 0.5, 450, 6),
    AccountUse("tumours", "guest", "tumours", 0.5, 150, 2),
    AccountUse("physics", "", "root", 0.3, 200, 2),
    AccountUse("physics", "curie", "physics", 1.0, 200, 2),
)


class Slurm(SlurmAccountSync):
    def __init__(self, used: Sequence[AccountUse]) -> None:
        self._used = used

    def used(self) -> Sequence[AccountUse]:
        return self._used


def test_slurms_accounts_are_shown_as_our_departments_projects_and_users() -> None:
    imaging, new, _ = slurm_standing(Slurm(USED), ACCOUNTS, {"anna": "ann"})
    assert (imaging.name, imaging.share, imaging.entitled, imaging.usage) == ("imaging", 3, 0.6, 8)
    assert imaging.ratio == pytest.approx(0.75 / 0.6)
    hearts, tumours = imaging.below
    assert (hearts.name, hearts.entitled) == ("hearts", None)  # Slurm does not have it
    assert (tumours.share, tumours.entitled, tumours.ratio) == (2, pytest.approx(0.3), pytest.approx(2.0))
    ann, guest = tumours.below
    assert (ann.name, guest.name) == ("ann", "guest")  # one of ours by our name, another by the Unix user
    assert (ann.entitled, ann.usage, ann.ratio) == (pytest.approx(0.15), 6, pytest.approx(1.5))
    assert (new.entitled, new.below) == (None, ())


def test_what_is_in_no_account_of_ours_is_one_line_that_names_nobody() -> None:
    elsewhere = slurm_standing(Slurm(USED), ACCOUNTS, {})[-1]
    assert (elsewhere.name, elsewhere.usage, elsewhere.below) == (ELSEWHERE, 2, ())
    assert elsewhere.ratio == pytest.approx(0.25 / 0.4)


def test_a_slurm_that_says_nothing_leaves_the_tree_without_usage() -> None:
    imaging, _ = slurm_standing(Slurm(()), ACCOUNTS, {})
    assert (imaging.entitled, imaging.usage, len(imaging.below)) == (None, 0.0, 2)
