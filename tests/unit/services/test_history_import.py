"""Import of past Slurm jobs: each once, for the right user."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from heliostat.errors import Conflict, Forbidden, Invalid
from heliostat.models import Job, JobState
from heliostat.services.cluster.usage_reports import monthly_usage_report
from heliostat.services.history_import_export import (
    HistoryImportResult,
    SacctImportRequest,
    export_history,
    import_slurm_history,
)
from heliostat.services.logs.reader import LogRange, read_log
from heliostat.store import accounts, schema
from heliostat.store import jobs as stored
from heliostat.store.forecasts import list_finished_runs
from heliostat.store.history import SubmissionPeriod
from heliostat.store.job_writes import add_jobs
from heliostat.store.usage import list_attempt_usage, list_daily_usage
from unit.services.site import Site, a_job

HEADER = (
    "JobID|Cluster|User|Account|State|ExitCode|Submit|Start|End|AllocCPUS|AllocTRES|NodeList|MaxRSS|JobName|"
    "SubmitLine"
)
MADE_AT = 1_772_300_000  # in February 2026


def row(number: int | str, user: str = "alice", account: str = "default", **other: str) -> str:
    begin = MADE_AT + int(str(number).partition("_")[0])
    times = [str(begin), str(begin + 60), str(begin + 3660)]
    fields = dict(
        zip(HEADER.split("|"), [str(number), "lab", user, account, "COMPLETED", "0:0", *times], strict=False)
    )
    fields |= {"AllocCPUS": "8", "AllocTRES": "cpu=8,gres/gpu=4,mem=32G", "NodeList": "n1", "JobName": "train"}
    return "|".join((fields | other).get(name, "") for name in HEADER.split("|"))


def bring(site: Site, *rows: str, **names: dict[str, str]) -> HistoryImportResult:
    return import_slurm_history(
        site.context, site.root, SacctImportRequest("\n".join([HEADER, *rows, ""]), **names)
    )  # type: ignore[arg-type]


def jobs(site: Site) -> list[Job]:
    with site.context.store.read() as conn:
        return stored.list_jobs(conn, stored.JobFilter(), 100)[::-1]


def test_a_job_is_imported_once_with_origin_attempt_and_usage(site: Site) -> None:
    rows = [row(1), row(2)]
    assert bring(site, *rows).jobs == 2
    assert bring(site, *rows, row(3)) == HistoryImportResult(1, 2, {}, [])
    first = jobs(site)[0]
    assert (first.id, first.user, first.origin_system, first.origin_job_number) == (1, "alice", "slurm", "1")
    assert (first.state, first.attempt, first.node) == (JobState.COMPLETED, 1, "n1")
    assert first.reason == "imported from Slurm, where it was 1"
    with site.context.store.read() as conn:
        (used,) = list_attempt_usage(conn, first.id)
        assert (used.elapsed_seconds, used.gpu_seconds) == (3600.0, 14400.0)
        assert len(conn.execute(select(schema.attempts)).all()) == 3


def test_it_counts_in_reports_exports_and_run_times_but_not_in_shares_and_quotas(site: Site) -> None:
    bring(site, row(1), row(2, user="bob"))
    (line,) = monthly_usage_report(site.context, site.root, "2026-02", "project")
    assert (line.jobs, line.gpu_hours, line.mean_wait_seconds) == (2, 8.0, 60.0)
    exported = [json.loads(text) for text in export_history(site.context, site.root, SubmissionPeriod())]
    assert [one.get("source") for one in exported] == ["slurm", "slurm", None]
    since = site.clock() - timedelta(days=90)
    with site.context.store.read() as conn:
        assert [run.seconds for run in list_finished_runs(conn, since, 10)] == [3600.0, 3600.0]
        assert list_daily_usage(conn, since, site.clock()) == []


def test_jobs_that_came_from_this_heliostat_are_not_imported_again(site: Site) -> None:
    site.project("tumours")
    begin, end = (datetime.fromtimestamp(MADE_AT + seconds, UTC) for seconds in (0, 3700))
    own = replace(a_job(12, None), unix_user="alice", submitted_at=begin, ended_at=end)
    site.context.store.write(lambda tx: add_jobs(tx, [own]))

    def command(attempt: str) -> dict[str, str]:
        return {"SubmitLine": f"sbatch --parsable --comment=heliostat:0123456789ab:{attempt} --output=/x"}

    result = bring(
        site,
        row(20, **command("12.1")),
        row("21_1", **command("12.2+")),
        row(22, user="bob", **command("12.1")),  # a comment that bob has invented
        row(90_000_000, **command("12.1")),  # submitted long afterwards: by another installation
        row(23, **command("99.1")),
        row(24, SubmitLine="sbatch train.sh --comment=heliostat:0123456789ab:12.1 "),
    )
    assert (result.jobs, result.skipped) == (4, {"jobs of this Heliostat": 2})
    assert bring(site, row(20, account="unknown", **command("12.1"))).jobs == 0


def test_an_account_needs_a_project_and_without_one_nothing_is_written(site: Site) -> None:
    site.project("tumours")
    with pytest.raises(Invalid, match="accounts 'lab'") as refused:
        bring(site, row(1), row(2, account="lab"))
    assert "--project" in (refused.value.hint or "")
    assert jobs(site) == []
    bring(site, row(1), row(2, account="lab"), row(3, account="x"), projects={"lab": "tumours", "*": "default"})
    assert [job.project for job in jobs(site)] == ["default", "tumours", "default"]
    with pytest.raises(Invalid, match="no project 'nope'"):
        bring(site, row(4), projects={"lab": "nope"})


def test_unix_users_get_their_account_and_others_a_placeholder(site: Site) -> None:
    rows = [row(1), row(2, user="gone"), row(3, user="Odd@lab"), row(4, user="root"), row(5, user="daemon")]
    made = bring(site, *rows).accounts
    assert sorted(made) == ["_odd_lab", "alice", "daemon", "gone"]
    assert [job.user for job in jobs(site)] == ["alice", "gone", "_odd_lab", "root", "daemon"]
    assert bring(site, row(6, user="gone"), row(7, user="Odd@lab")).accounts == []
    with site.context.store.read() as conn:
        found = {user.name: user for user in accounts.list_users(conn)}
    assert (found["alice"].active, found["alice"].unix_user) == (True, "alice")
    assert (found["gone"].active, found["gone"].unix_user) == (False, None)


def test_a_user_does_not_get_the_history_of_a_namesake(site: Site) -> None:
    people_before = site.person("gone")
    site.context.store.write(lambda tx: accounts.update_user(tx, "gone", unix_user="bob"))
    assert people_before.user.name == "gone"
    assert bring(site, row(1, user="gone")).accounts == ["gone.slurm"]
    bring(site, row(2, user="gone"), users={"gone": "gone"})
    assert [job.user for job in jobs(site)] == ["gone.slurm", "gone"]


def test_a_job_on_several_equal_nodes_has_one_task_per_node(site: Site) -> None:
    even, odd = {"NodeList": "n[1-2]"}, {"NodeList": "n[1-3]"}
    bring(site, row(1, **even), row(2, **odd))
    first, second = jobs(site)
    assert (first.placement.tasks, first.resources.cpus, first.resources.gpus) == (2, 4, 2)
    assert [place.node for place in first.places] == ["n1", "n2"]
    assert (second.placement.tasks, second.resources.cpus, second.resources.gpus) == (1, 8, 4)


def test_only_admins_can_import(site: Site) -> None:
    with pytest.raises(Forbidden):
        import_slurm_history(site.context, site.person("bob"), SacctImportRequest(HEADER))


def test_an_import_with_new_jobs_is_in_the_audit_log(site: Site) -> None:
    for _ in range(2):
        bring(site, row(1))
    assert [entry.detail for entry in site.audit() if entry.action == "history.import"] == [
        {"jobs": 1, "known": 0, "accounts": 1}
    ]


def test_reading_the_log_of_an_imported_job_reports_where_it_ran(site: Site) -> None:
    bring(site, row(1))
    with pytest.raises(Conflict, match="ran on slurm as 1"):
        read_log(site.context, jobs(site)[0], LogRange())
