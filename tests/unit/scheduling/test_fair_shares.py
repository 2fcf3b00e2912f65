"""Usage relative to shares: examples calculated by hand."""

import numpy as np
import pytest

from heliostat.models import Department, Project
from heliostat.scheduling.fair_share_tree import build_fair_share_tree, compute_share_levels
from heliostat.scheduling.share_accounts import ShareAccounts

ACCOUNTS = ShareAccounts(
    {"north": Department("north", 3), "south": Department("south", 1)},
    {
        "red": Project("red", "north", share=2),
        "green": Project("green", "north"),
        "blue": Project("blue", "south"),
    },
)
LEAVES = (("red", "ann"), ("red", "bob"), ("green", "ann"), ("blue", "cem"))
TREE = build_fair_share_tree(LEAVES, ACCOUNTS)
USAGE = np.array([60.0, 0.0, 30.0, 30.0])


def test_the_tree_assigns_projects_and_departments() -> None:
    assert TREE.departments == ("north", "south")
    assert TREE.projects == ("red", "green", "blue")
    assert TREE.department_of.tolist() == [0, 0, 0, 1]
    assert TREE.project_of.tolist() == [0, 0, 1, 2]


def test_departments_projects_and_users_are_each_measured_against_their_siblings() -> None:
    departments, projects, users = compute_share_levels(TREE, USAGE, floor=0.0)
    # north is entitled to 3/4 of 120: 90, which is exactly what it used.
    assert departments.entitled_usage == pytest.approx([90, 30])
    assert departments.usage_ratio == pytest.approx([1, 1])
    # red is entitled to 2/3 of the 90 of north.
    assert projects.entitled_usage == pytest.approx([60, 30, 30])
    assert projects.usage_ratio == pytest.approx([1, 1, 1])
    # ann and bob are each entitled to half of the 60 of red: ann used twice her share, bob nothing.
    assert users.entitled_usage == pytest.approx([30, 30, 30, 30])
    assert users.usage_ratio == pytest.approx([2, 0, 1, 1])


def test_a_floor_makes_differences_small_while_usage_is_low() -> None:
    departments, projects, users = compute_share_levels(TREE, USAGE, floor=1200.0)
    assert departments.entitled_usage == pytest.approx([0.75 * 1320, 0.25 * 1320])
    assert projects.entitled_usage == pytest.approx([(90 + 900) * 2 / 3, (90 + 900) / 3, 30 + 300])
    assert users.entitled_usage == pytest.approx([(60 + 600) / 2, (60 + 600) / 2, 30 + 300, 30 + 300])


def test_unknown_projects_share_the_default_department() -> None:
    tree = build_fair_share_tree((("new", "ann"), ("other", "bob")), ShareAccounts())
    assert tree.departments == ("default",)
    assert tree.project_shares.tolist() == [0.5, 0.5]
