"""Slurm's usage in the tree of departments, projects and users."""

from collections.abc import Sequence

import pytest

from heliostat.engines.account_sync import AccountUsage
from heliostat.engines.slurm.accounts.sync import SlurmAccountSync
from heliostat.models import Department, Project
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.services.accounts.share_tree import OTHER_SLURM_ACCOUNTS, slurm_share_tree

ACCOUNTS = ShareAccounts(
    departments={"imaging": Department("imaging", 3), "new": Department("new")},
    projects={"tumours": Project("tumours", "imaging", share=2), "hearts": Project("hearts", "imaging")},
)
USED = (
    AccountUsage("root", "", "", 0.0, 800, 10),
    AccountUsage("root", "root", "root", 0.1, 0, 0),
    AccountUsage("_imaging", "", "root", 0.6, 600, 8),
    AccountUsage("tumours", "", "_imaging", 0.5, 600, 8),
    AccountUsage("tumours", "anna", "tumours", 0.5, 450, 6),
    AccountUsage("tumours", "guest", "tumours", 0.5, 150, 2),
    AccountUsage("physics", "", "root", 0.3, 200, 2),
    AccountUsage("physics", "curie", "physics", 1.0, 200, 2),
)


class Slurm(SlurmAccountSync):
    def __init__(self, used: Sequence[AccountUsage]) -> None:
        self._used = used

    def account_usage(self) -> Sequence[AccountUsage]:
        return self._used


def test_slurm_accounts_are_shown_as_departments_projects_and_users() -> None:
    imaging, new, _ = slurm_share_tree(Slurm(USED), ACCOUNTS, {"anna": "ann"})
    assert (imaging.name, imaging.share, imaging.entitled, imaging.usage) == ("imaging", 3, 0.6, 8)
    assert imaging.ratio == pytest.approx(0.75 / 0.6)
    hearts, tumours = imaging.children
    assert (hearts.name, hearts.entitled) == ("hearts", None)  # Slurm does not have it
    assert (tumours.share, tumours.entitled, tumours.ratio) == (2, pytest.approx(0.3), pytest.approx(2.0))
    ann, guest = tumours.children
    assert (ann.name, guest.name) == ("ann", "guest")  # a known user by the account name, another by the Unix user
    assert (ann.entitled, ann.usage, ann.ratio) == (pytest.approx(0.15), 6, pytest.approx(1.5))
    assert (new.entitled, new.children) == (None, ())


def test_other_slurm_accounts_are_one_line_without_names() -> None:
    elsewhere = slurm_share_tree(Slurm(USED), ACCOUNTS, {})[-1]
    assert (elsewhere.name, elsewhere.usage, elsewhere.children) == (OTHER_SLURM_ACCOUNTS, 2, ())
    assert elsewhere.ratio == pytest.approx(0.25 / 0.4)


def test_without_a_slurm_response_the_tree_has_no_usage() -> None:
    imaging, _ = slurm_share_tree(Slurm(()), ACCOUNTS, {})
    assert (imaging.entitled, imaging.usage, len(imaging.children)) == (None, 0.0, 2)
