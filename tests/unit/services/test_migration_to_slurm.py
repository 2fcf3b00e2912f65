"""Migration from the local engine to Slurm: all or nothing, without data loss."""

import fcntl
import os
import sqlite3
import tomllib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.config import Home, ServerSettings, Settings, load_settings
from heliostat.config.toml_edit import replace_setting
from heliostat.engines import account_sync
from heliostat.engines.account_sync import AccountPlan, AccountStep, EngineMembership, HeliostatAccounts
from heliostat.engines.contract import Finding
from heliostat.engines.slurm.accounts.sacctmgr import SlurmAccounts
from heliostat.engines.slurm.cluster_state import ClusterSnapshot
from heliostat.engines.slurm.command_output import SlurmNode, SlurmPartition
from heliostat.engines.slurm.mapping import make_name_mapping
from heliostat.engines.slurm.request_checker import SlurmRequestChecker
from heliostat.errors import Conflict, Invalid
from heliostat.models import Job, JobSpec, JobState, PlacementRequest, Resources
from heliostat.services import migration_to_slurm
from heliostat.services.migration_to_slurm import TargetSlurm, migrate_to_slurm, plan_migration
from heliostat.store.accounts import list_audit_entries
from heliostat.store.database import Store
from heliostat.store.job_writes import add_jobs
from heliostat.store.jobs import get_job
from heliostat.store.projects_and_quotas import list_slurm_associations
from support.new_database import create_database
from unit.store.made_up import a_job, add_people

PICTURE = ClusterSnapshot(
    {"main": SlurmPartition("main", frozenset({"n1"}), is_default=True)},
    (SlurmNode("n1", "idle", 16, 16000, (("a100", 4),), ("fast",), None),),
    (),
)
TOML = '# our lab\n[server]\nport = 9000\nengine = "local"  # for now\n\n[queue.gpu_charges]\nengine = 2.0\n'


class Accounts:
    """Slurm allows one priority class for all users."""

    def qos_refusal_reason(self, user: str, project: str, name: str) -> str | None:
        return None if name == "low" else f"the QOS {name} does not exist"


ACCOUNTS = cast(SlurmAccounts, Accounts())


class AccountSync:
    """A Slurm that has no account for one person; may refuse to read or to change them."""

    def __init__(self, error: Exception | None = None, refusal: Exception | None = None) -> None:
        self.error, self.refusal = error, refusal
        self.done: list[str] = []

    @contextmanager
    def lock_changes(self) -> Iterator[None]:
        yield

    def plan(self, ours: HeliostatAccounts, created: Collection[EngineMembership]) -> AccountPlan:
        if self.error is not None:
            raise self.error
        steps = () if self.done else (AccountStep("Add ann to the account default.", [], ("default", "ann")),)
        return AccountPlan("lab", steps, ("bob is not in the account x.",), ())

    def apply_step(self, step: AccountStep) -> bool:
        if self.refusal is not None:
            raise self.refusal
        self.done.append(step.sentence)
        return True


def slurm(settings: Settings, accounts: AccountSync, *findings: Finding) -> TargetSlurm:
    names = make_name_mapping(settings.slurm).with_observed_gpu_types(PICTURE.gpu_types)
    requests = SlurmRequestChecker(PICTURE, names, ACCOUNTS)
    return TargetSlurm(
        findings or (Finding("slurm", "ok", "slurmctld responds."),),
        requests,
        cast(account_sync.AccountSync, accounts),
    )


def look(settings: Settings) -> TargetSlurm:
    return slurm(settings, AccountSync())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.config_file.write_text(TOML)
    create_database(home.database)
    return home


def fill(home: Home, *jobs: Job) -> None:
    store = Store(home.database)
    store.write(add_people)
    mine = [replace(job, unix_user="root") for job in jobs]
    store.write(lambda tx: add_jobs(tx, mine))
    store.close()


def stored(home: Home, number: int) -> Job:
    store = Store(home.database)
    with store.read() as conn:
        job = get_job(conn, number)
    store.close()
    assert job is not None
    return job


def move(home: Home, **options: bool) -> migration_to_slurm.MigrationResult:
    return migrate_to_slurm(load_settings(home), read_slurm=look, **options)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may run jobs as others")


@needs_root
def test_only_the_engine_setting_changes_and_backups_exist(home: Home) -> None:
    fill(home, a_job(1), a_job(2, state=JobState.HELD))
    moved = move(home)
    assert home.config_file.read_text() == TOML.replace('"local"', '"slurm"')
    assert (moved.plan.waiting, moved.plan.unfit) == (2, ())
    assert [copy.name for copy in moved.backup_files] == ["cluster.toml.before-slurm", "heliostat.db.before-slurm"]
    assert moved.backup_files[0].read_text() == TOML
    assert moved.backup_files[1].stat().st_mode & 0o777 == 0o600
    connection = sqlite3.connect(moved.backup_files[1])
    assert connection.execute("SELECT count(*) FROM jobs").fetchone() == (2,)
    connection.close()
    assert stored(home, 1).state is JobState.PENDING
    assert move(home).plan.is_done


def test_a_missing_settings_file_is_created(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert move(home).backup_files == ()
    assert load_settings(home).server.engine == "slurm"


def test_running_jobs_prevent_the_migration(home: Home) -> None:
    fill(home, a_job(1, state=JobState.RUNNING, attempt=1, node="here"), a_job(2))
    with pytest.raises(Conflict, match="stopped: 1"):
        move(home)
    assert home.config_file.read_text() == TOML
    assert sorted(os.listdir(home.path)) == ["cluster.toml", "heliostat.db", "server.lock"]


@needs_root
@pytest.mark.parametrize(
    ("job", "why"),
    [
        (a_job(1, resources=Resources(gpus=0.5)), "not fractions"),
        (a_job(1, resources=Resources(gpus=1, gpu_type="T4")), "No node in Slurm's partition"),
        (a_job(1, resources=Resources(gpus=1, gpu_memory_mib=1)), "no information about GPU memory"),
        (a_job(1, resources=Resources(gpus=5)), "No node in Slurm's partition main is large enough"),
        (a_job(1, placement=PlacementRequest(labels=("disk=ssd",))), "does not support the label"),
        (a_job(1, placement=PlacementRequest(labels=("slow",))), "slow"),
        (a_job(1, priority_class="high"), "would refuse the class high"),
        (a_job(1, placement=PlacementRequest(reservation="course")), "no reservation course"),
        (a_job(1, spec=JobSpec(("true",), image="alpine", runtime="docker")), "outside of Slurm's limits"),
    ],
)
def test_unsupported_jobs_are_listed_and_held_on_request(home: Home, job: Job, why: str) -> None:
    fill(
        home,
        job,
        a_job(2, resources=Resources(gpus=4, gpu_type="A100"), placement=PlacementRequest(labels=("fast",))),
    )
    (unfit,) = plan_migration(load_settings(home), look).unfit
    assert (unfit.job_id, why in unfit.why) == (1, True), unfit
    with pytest.raises(Conflict, match="these jobs: 1"):
        move(home)
    move(home, hold_unfit=True)
    held = stored(home, 1)
    assert (held.state, why in (held.reason or "")) == (JobState.HELD, True)
    assert stored(home, 2).state is JobState.PENDING


def test_problems_of_the_installation_prevent_the_migration(home: Home) -> None:
    problem = Finding("slurm", "problem", "slurmctld does not respond.", "See its log.")
    with pytest.raises(Conflict, match="slurmctld does not respond"):
        migrate_to_slurm(load_settings(home), read_slurm=lambda settings: slurm(settings, AccountSync(), problem))
    assert home.config_file.read_text() == TOML


def test_the_plan_names_what_slurm_lacks_and_the_migration_creates_it(home: Home) -> None:
    accounts = AccountSync()
    plan = plan_migration(load_settings(home), lambda settings: slurm(settings, accounts))
    assert plan.account_steps == ("Add ann to the account default.",)
    assert plan.accounts_left_out == ("bob is not in the account x.",)
    assert accounts.done == []
    migrate_to_slurm(load_settings(home), read_slurm=lambda settings: slurm(settings, accounts))
    assert accounts.done == ["Add ann to the account default."]
    store = Store(home.database)
    with store.read() as conn:
        assert list_slurm_associations(conn) == {("default", "ann")}
        assert [entry.action for entry in list_audit_entries(conn, 10)] == ["slurm.apply"]
    store.close()


def test_a_refused_account_ends_the_migration_before_the_engine_changes(home: Home) -> None:
    accounts = AccountSync(refusal=Conflict("Access denied"))
    with pytest.raises(Conflict, match="Access denied") as refused:
        migrate_to_slurm(load_settings(home), read_slurm=lambda settings: slurm(settings, accounts))
    assert "helio migrate slurm" in (refused.value.hint or "")
    assert home.config_file.read_text() == TOML


def test_without_accounting_nothing_is_created_and_the_plan_says_so(home: Home) -> None:
    away = AccountSync(Conflict("Cannot read Slurm's accounting."))
    plan = plan_migration(load_settings(home), lambda settings: slurm(settings, away))
    assert plan.account_steps == ()
    assert "Cannot read Slurm's accounting." in plan.accounts_left_out[0]


def test_a_running_server_allows_only_the_plan(home: Home) -> None:
    with open(home.lock_file, "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Conflict, match="is running"):
            move(home)
        plan = plan_migration(load_settings(home), look)
        assert (plan.is_done, plan.waiting, plan.unfit, plan.problems) == (False, 0, (), ())


@needs_root
@pytest.mark.parametrize("step", ["copy_database", "_hold", "move_into_place"])
def test_an_interrupted_migration_can_be_repeated(home: Home, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    fill(home, a_job(1), a_job(2, resources=Resources(gpus=0.5)))

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    whole: Callable[..., object] = getattr(migration_to_slurm, step)
    monkeypatch.setattr(migration_to_slurm, step, broken)
    with pytest.raises(OSError, match="No space"):
        move(home, hold_unfit=True)
    assert load_settings(home).server.engine == "local"
    monkeypatch.setattr(migration_to_slurm, step, whole)
    move(home, hold_unfit=True)
    assert load_settings(home).server.engine == "slurm"
    assert [stored(home, number).state for number in (1, 2)] == [JobState.PENDING, JobState.HELD]


def test_only_the_local_engine_can_be_migrated(home: Home) -> None:
    with pytest.raises(Conflict, match="simulated"):
        plan_migration(replace(load_settings(home), server=ServerSettings(engine="simulated")), look)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[server]",
        "[server]\r\nport = 1\r\n",
        "[queue.gpu_charges]\na = 1",
        " [ server ] # x\n  engine='x' # y\n[a]\nb = 1\n",
        "server.engine = 'x'",
        "server.port = 1",
        '[a]\nengine = "b"\n',
        '[a]\nengine = "b"\n[server]\nport = 1\n[b]\nengine = 2\n',
        '# [server]\n[server]\n# engine = "x"\n',
        "[server.x]\ny = 1\n",
    ],
)
def test_one_setting_changes_and_nothing_else(text: str) -> None:
    changed, before = replace_setting(text, "server", "engine", "slurm"), tomllib.loads(text)
    assert tomllib.loads(changed) == before | {"server": before.get("server", {}) | {"engine": "slurm"}}
    assert replace_setting(changed, "server", "engine", "slurm") == changed


@pytest.mark.parametrize(
    "text",
    [
        '[server]\n"engine" = "local"\n',
        '[server]\ntime_zone = """\nengine = "x"\n"""\nengine = 3\n',
        "[server]\nengine = 3\n",
        "server = { port = 1 }\n",
        "server = 3\n",
    ],
)
def test_unsafe_changes_of_the_settings_file_are_refused(text: str) -> None:
    with pytest.raises(Invalid, match="cannot be changed automatically"):
        replace_setting(text, "server", "engine", "slurm")


@given(st.text())
def test_any_text_gives_a_valid_file_or_an_error(text: str) -> None:
    try:
        changed = replace_setting(text, "server", "engine", "slurm")
    except Invalid:
        return
    assert tomllib.loads(changed)["server"]["engine"] == "slurm"
