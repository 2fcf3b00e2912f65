"""Dependency graph and timeline of a workflow."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from markupsafe import Markup

from heliostat.models import Job, JobState
from heliostat.models.workflows import WorkflowJob
from heliostat.services.workflows.lifecycle import WorkflowView
from heliostat.web import formatting
from heliostat.web.workflow_page.graph_layout import layout_graph
from heliostat.web.workflow_page.svg_drawing import BoxLabel, GanttBar, draw_gantt, draw_graph

MAX_GANTT_BARS = 60
_TIMES = "\N{MULTIPLICATION SIGN}"
_WORST_FIRST = (
    *("failed", "refused", "timed_out", "lost", "running", "starting", "pending", "held", "cancelled"),
    *("completed", "skipped"),
)
_TERMINAL = frozenset({"failed", "refused", "timed_out", "lost", "cancelled", "completed", "skipped"})
WorkflowJobs = Sequence[tuple[WorkflowJob, Job]]


def display_state(row: WorkflowJob, job: Job) -> str:
    """A job state, skipped or refused."""
    return row.outcome or job.state.value


def group_by_step(view: WorkflowView) -> dict[str, list[tuple[WorkflowJob, Job]]]:
    steps: dict[str, list[tuple[WorkflowJob, Job]]] = {}
    for row, job in view.jobs:
        steps.setdefault(row.step, []).append((row, job))
    return steps


def draw_workflow_graph(view: WorkflowView, now: datetime) -> Markup:
    """One box per step; variants of a matrix share a box."""
    steps = group_by_step(view)
    drawing = layout_graph({name: jobs[0][0].needs for name, jobs in steps.items()})
    here = f"/workflows/{view.workflow.id}"
    labels = [
        _label(box.step_names, [pair for name in box.step_names for pair in steps[name]], here, now)
        for box in drawing.boxes
    ]
    return draw_graph(drawing, labels, f"Jobs of {view.workflow.name} and their dependencies")


def draw_workflow_gantt(view: WorkflowView, now: datetime) -> Markup:
    """One row per job, or per step if there are many jobs."""
    here = f"/workflows/{view.workflow.id}"
    if len(view.jobs) <= MAX_GANTT_BARS:
        bars = [_bar(row.key, [(row, job)], f"/jobs/{job.id}", now) for row, job in view.jobs]
    else:
        steps = list(group_by_step(view).items())[:MAX_GANTT_BARS]
        bars = [_bar(name, jobs, _step_url(here, [name]), now) for name, jobs in steps]
    return draw_gantt(bars, now, f"Timeline of the jobs of {view.workflow.name}")


def worst_state(jobs: WorkflowJobs) -> str:
    states = {display_state(row, job) for row, job in jobs}
    return next((state for state in _WORST_FIRST if state in states), "pending")


def describe_counts(jobs: WorkflowJobs) -> str:
    """`3 completed, 1 running`."""
    counts = Counter(display_state(row, job) for row, job in jobs)
    return ", ".join(f"{counts[state]:,} {state.replace('_', ' ')}" for state in _WORST_FIRST if counts[state])


def describe_duration(jobs: WorkflowJobs, now: datetime) -> str:
    started_at, ended_at = _span(jobs)
    return (
        "" if started_at is None else formatting.format_duration(((ended_at or now) - started_at).total_seconds())
    )


def _label(names: Sequence[str], jobs: WorkflowJobs, here: str, now: datetime) -> BoxLabel:
    if len(jobs) == 1:
        row, job = jobs[0]
        time = describe_duration(jobs, now)
        below = display_state(row, job).replace("_", " ") + (f", {time}" if time else "")
        return BoxLabel(row.key, below, display_state(row, job), f"/jobs/{job.id}")
    title = f"{names[0]} {_TIMES} {len(jobs):,}" if len(names) == 1 else f"{len(jobs):,} jobs"
    done_fraction = sum(display_state(row, job) in _TERMINAL for row, job in jobs) / len(jobs)
    return BoxLabel(
        title,
        describe_counts(jobs),
        worst_state(jobs),
        _step_url(here, names),
        done_fraction if done_fraction < 1 else 0.0,
    )


def _step_url(here: str, names: Sequence[str]) -> str:
    return f"{here}?step={names[0]}#jobs" if len(names) == 1 else f"{here}#jobs"


def _bar(title: str, jobs: WorkflowJobs, href: str, now: datetime) -> GanttBar:
    started_at, ended_at = _span(jobs)
    description = (
        f"{describe_counts(jobs)}, {describe_duration(jobs, now)}" if started_at else describe_counts(jobs)
    )
    return GanttBar(
        title if len(jobs) == 1 else f"{title} {_TIMES} {len(jobs):,}",
        worst_state(jobs),
        href,
        started_at,
        ended_at,
        description,
    )


def _span(jobs: WorkflowJobs) -> tuple[datetime | None, datetime | None]:
    """First start and last end; None: not yet."""
    starts = [job.started_at for _, job in jobs if job.started_at]
    if not starts:
        return None, None
    runs = any(job.state in (JobState.RUNNING, JobState.STARTING) for _, job in jobs)
    ends = [job.ended_at for _, job in jobs if job.ended_at and job.started_at]
    return min(starts), None if runs or not ends else max(ends)
