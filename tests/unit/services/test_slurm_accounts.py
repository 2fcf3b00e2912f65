"""Synchronisation of Slurm accounts: permissions, refused steps, lost responses, existing memberships."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from heliostat.engines.account_sync import AccountPlan
from heliostat.engines.slurm.accounts.sacctmgr import SlurmAccounts
from heliostat.engines.slurm.accounts.sync import SlurmAccountSync
from heliostat.engines.slurm.client import SlurmRefused
from heliostat.engines.slurm.cluster_state import check_priority_class
from heliostat.engines.slurm.engine import SlurmEngine
from heliostat.engines.slurm.mapping import NameMapping
from heliostat.errors import Conflict, EngineUnavailable, Forbidden, Invalid
from heliostat.loops.slurm_accounts import SlurmAccountUpdater
from heliostat.services.accounts.slurm_sync import apply_slurm_accounts, check_slurm_accounts, plan_slurm_accounts
from heliostat.services.accounts.users import UserChange, update_user
from heliostat.store.projects_and_quotas import list_slurm_associations
from unit.services.site import Site, a_job

CONFIG = "ClusterName = lab\nAccountingStorageEnforce = associations,limits,qos\n"


class EmptySlurm:
    """Has only the default accounts of Slurm; accepts every step without storing it."""

    def __init__(self) -> None:
        self.done: list[list[str]] = []
        self.refuses_users: Exception | None = None
        self.away = False

    def run_command(self, argv: Sequence[str]) -> str:
        if self.away:
            raise EngineUnavailable("Slurm does not answer.")
        if argv[0] == "scontrol":
            return CONFIG
        if "show" in argv:
            return {
                "account": "root|default root account",
                "associations": "root|||||||normal",
                "user": "",
                "qos": "normal|0||cluster|Normal QOS default",
            }[argv[4]]
        if self.refuses_users is not None and argv[3:5] == ["add", "user"]:
            raise self.refuses_users
        self.done.append(list(argv))
        return ""


def refusal(said: str) -> SlurmRefused:
    error = SlurmRefused(said)
    error.output = said
    return error


def made(site: Site) -> frozenset[tuple[str, str]]:
    with site.context.store.read() as conn:
        return list_slurm_associations(conn)


@pytest.fixture
def slurm(site: Site) -> EmptySlurm:
    """Behind an engine without its thread."""
    slurm = EmptySlurm()
    engine = SlurmEngine.__new__(SlurmEngine)
    engine.account_sync = SlurmAccountSync(SlurmAccounts(slurm), "abc")
    cast(SimpleNamespace, site.context).engine = engine
    return slurm


def test_only_admins_see_or_apply_the_plan(site: Site, slurm: EmptySlurm) -> None:
    ann = site.person("ann")
    for verb in (plan_slurm_accounts, apply_slurm_accounts):
        with pytest.raises(Forbidden):
            verb(site.context, ann)
    assert slurm.done == []


def test_another_engine_has_nothing_to_synchronise(site: Site) -> None:
    cast(SimpleNamespace, site.machines).name = "local"
    with pytest.raises(Conflict, match="engine local, not on Slurm"):
        plan_slurm_accounts(site.context, site.root)
    assert check_slurm_accounts(site.context) == []


def test_a_plan_changes_nothing_and_apply_is_in_the_audit_log(site: Site, slurm: EmptySlurm) -> None:
    plan = plan_slurm_accounts(site.context, site.root)
    assert slurm.done == []
    applied = apply_slurm_accounts(site.context, site.root)
    assert applied.applied_steps == plan.steps
    assert slurm.done == [step.argv for step in plan.steps]
    assert made(site) == {("default", "root")}
    entry = site.audit()[0]
    assert (entry.action, entry.target) == ("slurm.apply", "cluster lab")
    assert entry.detail == {"steps": [step.sentence for step in plan.steps]}


def test_the_first_refused_step_ends_the_run_with_a_report(site: Site, slurm: EmptySlurm) -> None:
    slurm.refuses_users = refusal(" Error with request: Access denied\n more")
    with pytest.raises(Conflict) as caught:
        apply_slurm_accounts(site.context, site.root)
    total = len(slurm.done) + 1
    assert caught.value.message == (
        f"Slurm refuses step {total} of {total} (Add root to the account default): Access denied."
    )
    assert "helio slurm apply" in (caught.value.hint or "")
    assert made(site) == frozenset()
    assert len(cast(list[str], site.audit()[0].detail["steps"])) == total - 1


def test_a_membership_added_by_another_process_is_not_ours(site: Site, slurm: EmptySlurm) -> None:
    slurm.refuses_users = refusal(" Nothing new added.")
    apply_slurm_accounts(site.context, site.root)
    assert made(site) == frozenset()


def test_a_membership_with_a_lost_response_is_ours(site: Site, slurm: EmptySlurm) -> None:
    slurm.refuses_users = EngineUnavailable("Slurm does not answer.")
    with pytest.raises(Conflict, match="Slurm does not answer"):
        apply_slurm_accounts(site.context, site.root)
    assert made(site) == {("default", "root")}


def test_the_doctor_counts_users_missing_in_slurm(site: Site, slurm: EmptySlurm) -> None:
    (finding,) = check_slurm_accounts(site.context)
    assert (finding.level, finding.message) == ("warning", "1 user and 1 project are not in Slurm yet.")
    assert "helio slurm plan" in (finding.hint or "")


def test_the_doctor_names_what_is_left_out(site: Site, slurm: EmptySlurm) -> None:
    class Sync:
        def plan(self, *_: object) -> AccountPlan:
            return AccountPlan("lab", (), ("The account old stays unchanged.", "Another."), ())

    cast(SimpleNamespace, site.context.engine).account_sync = Sync()
    (finding,) = check_slurm_accounts(site.context)
    assert finding.level == "ok"
    assert finding.message == "All users and projects are in Slurm, except: The account old stays unchanged."


def test_accounts_of_newcomers_are_applied_once_and_after_a_refusal_again(site: Site, slurm: EmptySlurm) -> None:
    updater = SlurmAccountUpdater(site.context)
    updater.run_once()
    assert made(site) == {("default", "root")}
    done = len(slurm.done)
    updater.run_once()
    assert len(slurm.done) == done  # nothing has changed in the database
    site.person("ann")
    update_user(site.context, site.root, "ann", UserChange(unix_user="ann"))
    slurm.refuses_users = refusal("Access denied")
    with pytest.raises(Conflict):
        updater.run_once()
    slurm.refuses_users = None
    updater.run_once()
    assert made(site) == {("default", "root"), ("default", "ann")}
    assert (site.audit()[0].user, site.audit()[0].via) == ("heliostat", "automatic")


def test_no_class_is_refused_while_slurm_is_unavailable(slurm: EmptySlurm) -> None:
    slurm.away = True
    check_priority_class(replace(a_job(1, None), priority_class="urgent"), NameMapping(), SlurmAccounts(slurm))


def test_a_class_without_its_qos_is_refused(slurm: EmptySlurm) -> None:
    accounts, urgent = SlurmAccounts(slurm), replace(a_job(1, None), priority_class="urgent")
    check_priority_class(a_job(2, None), NameMapping(), accounts)
    check_priority_class(urgent, NameMapping(qos={"urgent": "normal"}), accounts)
    with pytest.raises(Invalid, match="the QOS urgent does not exist") as caught:
        check_priority_class(urgent, NameMapping(), accounts)
    assert "helio slurm apply" in (caught.value.hint or "")
    assert "priority_class" in caught.value.fields
