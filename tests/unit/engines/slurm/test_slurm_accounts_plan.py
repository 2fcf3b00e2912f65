"""From found to wanted accounts: the steps lead there, are none the second time, and touch nothing of others."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliostat.engines.account_sync import HeliostatAccounts
from heliostat.engines.slurm.accounts.plan import (
    AccountingConfig,
    AccountingPlan,
    DesiredAccounting,
    build_desired_accounting,
    managed_memberships_after,
    plan_accounting,
)
from heliostat.engines.slurm.accounts.steps import (
    AccountLimits,
    AddAccount,
    AddUser,
    Association,
    GrantQos,
    ObservedAccounting,
    Qos,
    RemoveUser,
    SetAccount,
    SetDefaultAccount,
    SetUser,
    is_safe_name,
    ownership_description,
)
from heliostat.models import Department, Membership, Project, ProjectRole, Quota, Role, User
from support.hypothesis_examples import example_count

INSTANCE = "abc"
NONE = Quota()
ENFORCING = AccountingConfig("lab", frozenset({"associations", "limits", "qos"}))
ROOT = {("root", ""): Association(qos=frozenset({"normal"}))}
EMPTY = ObservedAccounting(
    "lab", {"root": "default root account"}, ROOT, {}, {"normal": Qos("Normal QOS default")}
)
NAMES = st.sampled_from(["ann", "bert", "carl"])
GROUPS = st.sampled_from(["vision", "imaging", "lab", "default"])
COUNTS = st.one_of(st.none(), st.integers(1, 9))


def user(name: str, *projects: str, quota: Quota = NONE, active: bool = True) -> User:
    mine = tuple(Membership(project, ProjectRole.MEMBER) for project in projects)
    return User(name, Role.USER, name, active, datetime(2026, 1, 1, tzinfo=UTC), mine, quota=quota)


def wanted(
    users: list[User], projects: list[Project], conduct: AccountingConfig = ENFORCING, quota: Quota = NONE
) -> DesiredAccounting:
    departments = [Department(name, 2, quota) for name in sorted({one.department for one in projects})]
    return build_desired_accounting(
        HeliostatAccounts(departments, projects, users, "default", 100), conduct, INSTANCE
    )


def after(found: ObservedAccounting, plan: AccountingPlan) -> ObservedAccounting:
    for step in plan.steps:
        found = step.apply_to(found)
    return found


def created_by(plan: AccountingPlan, made: frozenset[tuple[str, str]] = frozenset()) -> frozenset[tuple[str, str]]:
    for step in plan.steps:
        made = managed_memberships_after(step, made)
    return made


@st.composite
def wishes(draw: st.DrawFn) -> DesiredAccounting:
    projects = [
        Project(name, draw(GROUPS), share=draw(st.integers(1, 5)), quota=Quota(running_gpus=draw(COUNTS)))
        for name in draw(st.sets(GROUPS))
    ]
    names = [project.name for project in projects]
    users = [
        user(
            name,
            *draw(st.sets(st.sampled_from(names)) if names else st.just(())),
            quota=Quota(running_gpus=draw(COUNTS)),
        )
        for name in draw(st.sets(NAMES))
    ]
    return wanted(users, projects)


@st.composite
def strangers(draw: st.DrawFn) -> ObservedAccounting:
    """Accounts, users and QOS that an admin has made by hand, some with names that we would use."""
    found = EMPTY
    for name in draw(st.sets(st.sampled_from(["vision", "lab", "_imaging", "physics"]))):
        found = AddAccount(name, "root", "by hand", draw(st.integers(1, 9)), AccountLimits(draw(COUNTS))).apply_to(
            found
        )
        for person in draw(st.sets(NAMES)):
            found = AddUser(name, person, AccountLimits(draw(COUNTS))).apply_to(found)
    if draw(st.booleans()):
        found = replace(found, qos={**found.qos, "urgent": Qos("by hand", 7)})
    return found


@settings(max_examples=example_count(300))
@given(strangers(), wishes(), wishes())
def test_a_plan_that_is_carried_out_leaves_nothing_to_do_and_everything_of_others_as_it_was(
    found: ObservedAccounting, first: DesiredAccounting, second: DesiredAccounting
) -> None:
    made: frozenset[tuple[str, str]] = frozenset()
    there = found
    for wish in (first, second):
        plan = plan_accounting(wish, there, made)
        there, made = after(there, plan), created_by(plan, made)
        again = plan_accounting(wish, there, made)
        assert again.steps == ()
    for place, one in found.associations.items():
        assert there.associations[place] == one
    for name, description in found.descriptions.items():
        assert there.descriptions[name] == description
    for person, account in found.default_accounts.items():
        assert there.default_accounts[person] == account
    for name, qos in found.qos.items():
        assert there.qos[name] == qos


@given(strangers(), wishes())
def test_every_word_for_sacctmgr_is_an_option_with_a_plain_value(
    found: ObservedAccounting, wish: DesiredAccounting
) -> None:
    for step in plan_accounting(wish, found, frozenset()).steps:
        words = step.argv("lab")
        assert words[:3] == ["sacctmgr", "--immediate", "--quiet"]
        for word in words[3:]:
            assert "=" in word or word in {"add", "modify", "delete", "account", "user", "qos", "where", "set"}


def test_an_empty_slurm_gets_departments_projects_users_and_classes() -> None:
    wish = wanted([user("ann", "tumours")], [Project("tumours", "imaging", share=3)], quota=Quota(running_gpus=8))
    plan = plan_accounting(wish, EMPTY, frozenset())
    assert [step.sentence for step in plan.steps] == [
        "Add the QOS scavenger.",
        "Add the QOS interactive.",
        "Add the QOS urgent.",
        "Set the QOS interactive: priority 200, preempts scavenger.",
        "Set the QOS urgent: priority 1000, preempts scavenger.",
        "Add the account _imaging below root, share 2, at most 8 GPUs at the same time.",
        "Allow the account _imaging to use the QOS interactive, scavenger, urgent.",
        "Add the account tumours below _imaging, share 3.",
        "Add ann to the account tumours.",
    ]
    assert plan.steps[5].argv("lab") == [
        *("sacctmgr", "--immediate", "--quiet", "add", "account", "name=_imaging", "cluster=lab", "parent=root"),
        *("description=heliostat:abc:department:imaging", "organization=heliostat", "fairshare=2"),
        "GrpTRES=gres/gpu=8",
    ]


def test_an_account_of_an_admin_is_used_as_it_is_and_said_so() -> None:
    by_hand = AddAccount("vision", "root", "our cameras", 7, AccountLimits()).apply_to(EMPTY)
    wish = wanted([user("ann", "vision")], [Project("vision", "imaging")])
    plan = plan_accounting(wish, by_hand, frozenset())
    assert not [step for step in plan.steps if "vision" in step.argv("lab")]
    assert any("The account vision was not created by this Heliostat" in line for line in plan.unmanaged)
    assert any("sacctmgr add user ann account=vision" in line for line in plan.unmanaged)


def test_an_account_becomes_ours_when_an_admin_writes_our_mark_into_its_description() -> None:
    adopted = AddAccount(
        "vision", "root", ownership_description(INSTANCE, "project", "vision"), 7, AccountLimits(3)
    ).apply_to(EMPTY)
    wish = wanted([user("ann", "vision")], [Project("vision", "imaging")])
    changes = [step for step in plan_accounting(wish, adopted, frozenset()).steps if isinstance(step, SetAccount)]
    assert changes[0].sentence == (
        "Set the account vision: below _imaging instead of root, share 1 instead of 7,"
        " limit of GPUs none instead of 3."
    )
    assert changes[0].argv("lab")[-3:] == ["parent=_imaging", "fairshare=1", "GrpTRES=gres/gpu=-1"]


def test_the_account_of_another_heliostat_is_not_ours() -> None:
    theirs = AddAccount(
        "vision", "root", ownership_description("other", "project", "vision"), 7, AccountLimits()
    ).apply_to(EMPTY)
    plan = plan_accounting(wanted([], [Project("vision", "imaging")]), theirs, frozenset())
    assert any("vision" in line for line in plan.unmanaged)


def test_who_left_a_project_is_removed_only_if_we_had_put_them_there() -> None:
    projects = [Project("vision", "imaging")]
    there = after(EMPTY, plan_accounting(wanted([user("ann", "vision")], projects), EMPTY, frozenset()))
    there = AddUser("vision", "guest", AccountLimits()).apply_to(there)
    plan = plan_accounting(wanted([user("ann")], projects), there, {("vision", "ann")})
    assert plan.steps == (RemoveUser("vision", "ann"),)


def test_somebody_inactive_is_removed_last_of_all() -> None:
    projects = [Project("vision", "imaging")]
    before = plan_accounting(wanted([user("ann", "vision")], projects), EMPTY, frozenset())
    now = [user("ann", "vision", active=False), user("zoe", "vision")]
    plan = plan_accounting(wanted(now, projects), after(EMPTY, before), created_by(before))
    assert plan.steps == (AddUser("vision", "zoe", AccountLimits()), RemoveUser("vision", "ann"))


def test_a_user_an_admin_added_keeps_their_limits_and_their_default_account() -> None:
    by_hand = AddAccount("physics", "root", "by hand", 1, AccountLimits()).apply_to(EMPTY)
    by_hand = AddUser("physics", "ann", AccountLimits(2)).apply_to(by_hand)
    wish = wanted([user("ann", "default")], [Project("default", "default")])
    plan = plan_accounting(wish, by_hand, frozenset())
    assert not [step for step in plan.steps if isinstance(step, SetDefaultAccount | SetUser)]
    assert AddUser("default", "ann", AccountLimits()) in plan.steps


def test_the_default_account_is_that_of_the_default_project() -> None:
    projects = [Project("default", "default"), Project("a", "default")]
    first = plan_accounting(wanted([user("ann", "a")], projects), EMPTY, frozenset())
    second = plan_accounting(
        wanted([user("ann", "a", "default")], projects), after(EMPTY, first), created_by(first)
    )
    assert second.steps == (AddUser("default", "ann", AccountLimits()), SetDefaultAccount("default", "ann"))


def test_a_changed_quota_of_a_user_changes_their_association() -> None:
    projects = [Project("a", "default")]
    first = plan_accounting(wanted([user("ann", "a")], projects), EMPTY, frozenset())
    limited = wanted([user("ann", "a", quota=Quota(running_gpus=2))], projects)
    (step,) = plan_accounting(limited, after(EMPTY, first), created_by(first)).steps
    assert step.sentence == "Set ann in the account a: limit of GPUs 2 instead of none."
    assert step.argv("lab")[-1] == "GrpTRES=gres/gpu=2"


def test_a_qos_of_an_admin_is_neither_changed_nor_given_out() -> None:
    by_hand = replace(EMPTY, qos={**EMPTY.qos, "urgent": Qos("the director's", 5)})
    plan = plan_accounting(wanted([], [Project("a", "default")]), by_hand, frozenset())
    assert any("The QOS urgent was not created by this Heliostat" in line for line in plan.unmanaged)
    (grant,) = (step for step in plan.steps if isinstance(step, GrantQos))
    assert grant.names == ("interactive", "scavenger")


def test_what_slurm_cannot_express_is_said() -> None:
    quota = Quota(running_gpus=4, queued_gpus=9, gpu_hours_per_month=10)
    people = [user("ann", "a", "b", quota=quota)]
    wish = wanted(
        people, [Project("a", "d"), Project("b", "d")], AccountingConfig("lab", frozenset(), *[False] * 4)
    )
    said = "\n".join(wish.notes)
    for words in (
        "Limit of 9 queued GPUs for user ann",
        "Limit of 10 GPU-hours per month for user ann",
        "to each of the 2 projects",
        "does not enforce associations, limits, qos",
        "does not use shares",
        "does not use the QOS for the priority",
        "does not preempt scavenger jobs",
        "urgent GPU-hours per project",
    ):
        assert words in said


def test_a_normal_class_that_is_not_above_scavengers_is_said() -> None:
    wish = wanted([], [])
    assert any("QOS normal" in line for line in plan_accounting(wish, EMPTY, frozenset()).unsupported)
    raised = replace(EMPTY, qos={"normal": Qos("Normal QOS default", 100)})
    assert not any("QOS normal" in line for line in plan_accounting(wish, raised, frozenset()).unsupported)


def test_far_larger_shares_beside_ours_are_said_with_what_is_left_for_us() -> None:
    wish = wanted([], [Project("a", "imaging")])  # a department with the share 2
    beside = AddAccount("physics", "root", "by hand", 198, AccountLimits()).apply_to(EMPTY)
    (line,) = plan_accounting(wish, beside, frozenset()).unmanaged
    assert "far larger shares (physics 198)" in line
    assert "together are entitled to 1% of the cluster" in line
    alike = AddAccount("physics", "root", "by hand", 5, AccountLimits()).apply_to(EMPTY)
    assert plan_accounting(wish, alike, frozenset()).unmanaged == ()


def test_hours_a_month_are_a_limit_where_slurm_counts_by_the_month() -> None:
    by_month = replace(ENFORCING, resets_usage_monthly=True)
    wish = wanted([], [Project("a", "d", quota=Quota(gpu_hours_per_month=10))], by_month)
    assert wish.accounts[1].limits == AccountLimits(None, 600)


def test_a_unix_user_that_slurm_cannot_hold_is_left_out_and_named() -> None:
    odd = replace(user("ann", "a"), unix_user="Ann,root")
    wish = wanted([odd], [Project("a", "d")])
    assert wish.users == ()
    assert any("'Ann,root'" in line for line in wish.notes)


@pytest.mark.parametrize("name", ["", "-x", "a=b", "a,b", "a b", "A", "a\n", "a|b", "é", "+a"])
def test_hostile_names_are_not_safe(name: str) -> None:
    assert not is_safe_name(name)
