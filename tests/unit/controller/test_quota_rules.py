from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.controller.shares_and_quotas import SchedulingRules
from heliostat.models import Quota
from heliostat.store import accounts, job_writes, projects_and_quotas
from heliostat.store.database import Store
from heliostat.store.projects_and_quotas import QuotaLevel, set_quota
from unit.auth.stand_ins import new_store
from unit.store.made_up import a_job, add_people


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with new_store(tmp_path) as made:
        made.write(add_people)
        yield made


def test_rules_are_read_again_only_when_a_commit_changed_them(store: Store) -> None:
    rules = SchedulingRules(store)
    before = rules.share_accounts()
    store.write(lambda tx: job_writes.add_jobs(tx, [a_job(1)]))
    assert rules.share_accounts() is before
    store.write(lambda tx: projects_and_quotas.set_department_share(tx, "default", 7))
    assert rules.share_accounts().department_or_default("default").share == 7
    assert before.department_or_default("default").share == 1


def test_a_new_project_is_known_at_once_and_those_who_listen_are_told(store: Store) -> None:
    rules, told = SchedulingRules(store), []
    rules.on_change(lambda: told.append(rules.share_accounts().project_or_default("new").department))
    store.write(lambda tx: accounts.ensure_project(tx, "new", "physics"))
    assert told == ["physics"]


def test_a_change_that_is_refused_tells_nobody(store: Store) -> None:
    rules, told = SchedulingRules(store), []
    rules.on_change(lambda: told.append(1))

    def change(tx: object) -> None:
        projects_and_quotas.set_department_share(tx, "default", 7)  # type: ignore[arg-type]
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        store.write(change)
    assert not told
    assert rules.share_accounts().department_or_default("default").share == 1


def test_whether_anything_limits_the_queue_is_known(store: Store) -> None:
    rules = SchedulingRules(store)
    assert not rules.has_queued_gpu_quota()
    store.write(lambda tx: set_quota(tx, QuotaLevel.USER, "ann", Quota(running_gpus=1)))
    assert not rules.has_queued_gpu_quota()
    for scope, name in (
        (QuotaLevel.USER, "ann"),
        (QuotaLevel.PROJECT, "default"),
        (QuotaLevel.DEPARTMENT, "default"),
    ):
        store.write(lambda tx, s=scope, n=name: set_quota(tx, s, n, Quota(queued_gpus=0)))
        assert rules.has_queued_gpu_quota()
        store.write(lambda tx, s=scope, n=name: set_quota(tx, s, n, Quota()))
        assert not rules.has_queued_gpu_quota()
