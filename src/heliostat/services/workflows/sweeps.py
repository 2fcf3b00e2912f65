"""Sweeps: an array of jobs over parameter values, with the metrics that its jobs report."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from heliostat.errors import Invalid, NotFound
from heliostat.models import Caller, Job, JobSpec
from heliostat.models.csv_cells import quote_formula
from heliostat.models.workflows import SWEEP, Metric, Scalar, Sweep, WorkflowMembership
from heliostat.services.context import Context
from heliostat.services.jobs.metrics import get_metrics
from heliostat.services.jobs.submission import prepare_submission
from heliostat.services.workflows.plans import ParseJobRequest, with_retries
from heliostat.store import job_writes, workflow_start_decisions
from heliostat.store import workflows as stored
from heliostat.store.database import Transaction
from heliostat.store.jobs import get_jobs_without_spec
from heliostat.workflows.sweep_file import check_expanded_size, fill_words, parameter_environment, parse_sweep

PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One job of a sweep: its parameter values and its metrics."""

    index: int
    values: Mapping[str, Scalar]
    job: Job
    metrics: Mapping[str, Metric]


@dataclass(frozen=True, slots=True)
class SweepView:
    sweep: Sweep
    runs: tuple[SweepRun, ...] = ()

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self.sweep.table[0]) if self.sweep.table else ()

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for run in self.runs for name in run.metrics))


def submit_sweep(
    context: Context, caller: Caller, sweep_file: object, read_job: ParseJobRequest, key: str | None = None
) -> Sweep:
    """Submits all its runs or none, as one array. With a key, a repeated request returns the same sweep."""
    document = parse_sweep(sweep_file)
    try:
        request = with_retries(read_job(document.job_fields), document.retries, document.retry_seconds)
    except Invalid as error:
        raise error.in_part("job.", "job.") from None
    check_expanded_size([*request.spec.command, *request.spec.env.values()], document.variants)
    about = f"sweep {json.dumps(sweep_file, sort_keys=True, default=str)}"
    submission = prepare_submission(context, caller, [request], key, about)
    now = context.now()

    def change(tx: Transaction) -> Sweep:
        submitted = submission(tx)
        if (known := stored.find_sweep_by_first_job(tx.conn, submitted.job_ids[0])) is not None:
            return known
        first, ids = submitted.jobs[0], submitted.job_ids
        table = tuple(_plain(row) for row in document.variants)
        created = Sweep(
            0, document.name, caller.user.name, first.project, now, first.array_id or 0, ids[0], ids[-1], table
        )
        created = replace(created, id=stored.add_sweep(tx, created))
        for job, values in zip(submitted.jobs, document.variants, strict=True):
            workflow_start_decisions.set_job_spec(tx, job.id, _with_values(job.spec, values))
            membership = WorkflowMembership(SWEEP, created.id, str(job.array_index))
            job_writes.update_job(tx, job.id, {"part": membership})
        return created

    return context.store.write(change)


def list_sweeps(
    context: Context,
    caller: Caller,
    *,
    all_users: bool = False,
    limit: int = PAGE_SIZE,
    before: int | None = None,
) -> list[Sweep]:
    """The caller's own, newest first; with `all_users`, also those of projects the caller manages, for admins
    all."""
    user = caller.user
    managed = [m.project for m in user.memberships if user.may_manage(m.project)] if all_users else []
    with context.store.read() as conn:
        owner = None if all_users and user.is_admin else user.name
        return stored.list_sweeps(conn, owner, managed, limit, before)


def get_sweep(context: Context, caller: Caller, number: int, sort: str | None = None) -> SweepView:
    """With its runs, sorted by index, or by a parameter or metric: `acc`, or `-acc` in descending order."""
    with context.store.read() as conn:
        sweep = _visible(conn, caller, number)
        ids = range(sweep.first_job, sweep.last_job + 1)
        jobs = {
            job.array_index: job
            for job in get_jobs_without_spec(conn, ids).values()
            if job.array_id == sweep.array_id
        }
        metrics = get_metrics(context, conn, jobs.values())
    runs = [
        SweepRun(index, values, jobs[index], metrics.get(jobs[index].id, {}))
        for index, values in enumerate(sweep.table)
        if index in jobs
    ]
    return _sorted(SweepView(sweep, tuple(runs)), sort)


def sweep_csv(view: SweepView) -> str:
    """A line per run. Text that a spreadsheet would read as a formula is quoted."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    metrics = view.metrics
    writer.writerow(["index", "job", "state", *view.parameters, *metrics])
    for run in view.runs:
        parameters = map(quote_formula, run.values.values())
        reported_values = [run.metrics[name].value if name in run.metrics else "" for name in metrics]
        writer.writerow([run.index, run.job.id, run.job.state.value, *parameters, *reported_values])
    return text.getvalue()


def sort_columns(view: SweepView) -> tuple[str, ...]:
    """The columns that runs can be sorted by."""
    return tuple(dict.fromkeys(("index", "state", *view.parameters, *view.metrics)))


def _sorted(view: SweepView, sort: str | None) -> SweepView:
    name = (sort or "").removeprefix("-")
    if not name:
        return view
    if name not in sort_columns(view):
        known = ", ".join(sort_columns(view)[:20])
        raise Invalid(
            f"sort: there is no column {name[:60]!a}.", f"Columns: {known}.", fields={"sort": "does not exist"}
        )
    with_value = [run for run in view.runs if _value(run, name) is not None]
    without_value = [run for run in view.runs if _value(run, name) is None]
    with_value.sort(key=lambda run: _order(_value(run, name)), reverse=(sort or "").startswith("-"))
    return replace(view, runs=(*with_value, *without_value))


def _value(run: SweepRun, name: str) -> Scalar | None:
    if name in run.metrics:
        return run.metrics[name].value
    if name in run.values:
        return run.values[name]
    return {"index": run.index, "state": run.job.state.value}.get(name)


def _order(value: Scalar | None) -> tuple[bool, float, str]:
    """Numbers before texts."""
    is_text = isinstance(value, str)
    return is_text, 0.0 if is_text or value is None else float(value), str(value)


def _plain(row: Mapping[str, object]) -> dict[str, Scalar]:
    return {name: value for name, value in row.items() if isinstance(value, str | int | float)}


def _with_values(spec: JobSpec, values: Mapping[str, object]) -> JobSpec:
    row = _plain(values)
    texts: Sequence[str] = fill_words(list(spec.env.values()), row)
    env = {**parameter_environment(row), **dict(zip(spec.env, texts, strict=True))}
    return replace(spec, command=fill_words(spec.command, row), env=env)


def _visible(conn: Connection, caller: Caller, number: int) -> Sweep:
    sweep = stored.find_sweep(conn, number)
    if sweep is None or not (sweep.user == caller.user.name or caller.user.may_manage(sweep.project)):
        raise NotFound(f"There is no sweep {number}.", "`helio sweep list` lists yours.")
    return sweep
