"""From a workflow and its jobs to what is drawn of it."""

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
_OVER = frozenset({"failed", "refused", "timed_out", "lost", "cancelled", "completed", "skipped"})
WorkflowJobs = Sequence[tuple[WorkflowJob, Job]]


def display_state(row: WorkflowJob, job: Job) -> str:
    """A state of a job, or skipped or refused."""
    return row.outcome or job.state.value


def group_by_step(found: WorkflowView) -> dict[str, list[tuple[WorkflowJob, Job]]]:
    steps: dict[str, list[tuple[WorkflowJob, Job]]] = {}
    for row, job in found.jobs:
        steps.setdefault(row.step, []).append((row, job))
    return steps


def draw_workflow_graph(found: WorkflowView, now: datetime) -> Markup:
    """A box for each step: variants of a matrix share one."""
    steps = group_by_step(found)
    drawing = layout_graph({name: jobs[0][0].needs for name, jobs in steps.items()})
    here = f"/workflows/{found.workflow.id}"
    labels = [
        _label(box.step_names, [pair for name in box.step_names for pair in steps[name]], here, now)
        for box in drawing.boxes
    ]
    return draw_graph(drawing, labels, f"The jobs of {found.workflow.name} and whom each needs")


def draw_workflow_gantt(found: WorkflowView, now: datetime) -> Markup:
    """A row for each job while they are few, for each step otherwise."""
    here = f"/workflows/{found.workflow.id}"
    if len(found.jobs) <= MAX_GANTT_BARS:
        bars = [_bar(row.key, [(row, job)], f"/jobs/{job.id}", now) for row, job in found.jobs]
    else:
        steps = list(group_by_step(found).items())[:MAX_GANTT_BARS]
        bars = [_bar(name, jobs, _of_step(here, [name]), now) for name, jobs in steps]
    return draw_gantt(bars, now, f"When the jobs of {found.workflow.name} ran")


def worst_state(jobs: WorkflowJobs) -> str:
    looks = {display_state(row, job) for row, job in jobs}
    return next((look for look in _WORST_FIRST if look in looks), "pending")


def describe_counts(jobs: WorkflowJobs) -> str:
    """`3 completed, 1 running`."""
    counts = Counter(display_state(row, job) for row, job in jobs)
    return ", ".join(f"{counts[look]:,} {look.replace('_', ' ')}" for look in _WORST_FIRST if counts[look])


def describe_duration(jobs: WorkflowJobs, now: datetime) -> str:
    began, ended = _span(jobs)
    return "" if began is None else formatting.format_duration(((ended or now) - began).total_seconds())


def _label(names: Sequence[str], jobs: WorkflowJobs, here: str, now: datetime) -> BoxLabel:
    if len(jobs) == 1:
        row, job = jobs[0]
        time = describe_duration(jobs, now)
        below = display_state(row, job).replace("_", " ") + (f", {time}" if time else "")
        return BoxLabel(row.key, below, display_state(row, job), f"/jobs/{job.id}")
    title = f"{names[0]} {_TIMES} {len(jobs):,}" if len(names) == 1 else f"{len(jobs):,} jobs"
    part = sum(display_state(row, job) in _OVER for row, job in jobs) / len(jobs)
    return BoxLabel(
        title, describe_counts(jobs), worst_state(jobs), _of_step(here, names), part if part < 1 else 0.0
    )


def _of_step(here: str, names: Sequence[str]) -> str:
    return f"{here}?step={names[0]}#jobs" if len(names) == 1 else f"{here}#jobs"


def _bar(title: str, jobs: WorkflowJobs, href: str, now: datetime) -> GanttBar:
    began, ended = _span(jobs)
    told = f"{describe_counts(jobs)}, {describe_duration(jobs, now)}" if began else describe_counts(jobs)
    return GanttBar(
        title if len(jobs) == 1 else f"{title} {_TIMES} {len(jobs):,}", worst_state(jobs), href, began, ended, told
    )


def _span(jobs: WorkflowJobs) -> tuple[datetime | None, datetime | None]:
    """From the first start to the last end; None: not yet."""
    starts = [job.started_at for _, job in jobs if job.started_at]
    if not starts:
        return None, None
    runs = any(job.state in (JobState.RUNNING, JobState.STARTING) for _, job in jobs)
    ends = [job.ended_at for _, job in jobs if job.ended_at and job.started_at]
    return min(starts), None if runs or not ends else max(ends)
