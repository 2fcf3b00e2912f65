"""Node page: GPUs, jobs, usage over time, and for admins drain and resume, and the test of GPUs that failed."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from heliostat.errors import Invalid
from heliostat.models import NodeState
from heliostat.models.gpu_errors import describe_error
from heliostat.services.cluster import gpus
from heliostat.services.cluster import nodes as services
from heliostat.services.cluster.overview import DeviceStatus, NodeStatus, get_node_status
from heliostat.services.cluster.stats import StatsPeriod, node_stats
from heliostat.web import formatting, heatmap
from heliostat.web.grafana import node_dashboard_url
from heliostat.web.heatmap import HeatmapCell
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AdminDep, AuthenticatedDep, AuthenticatedRequest, FormDep
from heliostat.web.usage_plots import PLOT_SPANS, UsagePlot, draw_node_plots
from heliostat.web.view_models import Confirmation, PageUrl

router = APIRouter()
_MAX_ERRORS = 5  # of a GPU
NodeName = Annotated[str, Path(max_length=128)]
_SPAN_DAYS = {StatsPeriod.DAY: 1, StatsPeriod.WEEK: 7, StatsPeriod.MONTH: 31}
GpuNumber = Annotated[str, Path(pattern=r"^\d{1,4}$")]
SpanText = Annotated[str, Query(max_length=20)]


@dataclass(frozen=True, slots=True)
class DeviceRow:
    observed: DeviceStatus
    cell: HeatmapCell
    condition: str
    problem: str


@dataclass(frozen=True, slots=True)
class GpuHistoryRow:
    history: gpus.GpuHistory
    used_hours: float
    failure: str | None
    errors: tuple[tuple[datetime, str, int | None], ...]  # when, what, and whose program


@dataclass(frozen=True, slots=True)
class NodeView:
    observed: NodeStatus
    gpu_history: tuple[GpuHistoryRow, ...]
    href: str
    devices: tuple[DeviceRow, ...]
    labels: tuple[str, ...]
    data_class: str
    spans: tuple[tuple[str, str, bool], ...]
    span: str
    plots: tuple[UsagePlot, ...]
    grafana_url: str  # empty: no dashboard
    may_change: bool
    is_drained: bool
    reason: str  # rejected input
    reason_error: str


@router.get("/cluster/{node}")
def show_node(request: AuthenticatedDep, node: NodeName, span: SpanText = "day") -> Response:
    if span not in [one.value for one in PLOT_SPANS]:
        raise Invalid(f"Unknown span {span!a}.", "Use day, week or month.", fields={"span": "unknown"})
    return _page(request, node, StatsPeriod(span))


@router.post("/cluster/{node}/drain")
def drain_node(request: AdminDep, node: NodeName, form: FormDep) -> Response:
    """Needs a confirmation."""
    reason = form.get("reason")
    status = get_node_status(request.context, request.caller, node)
    try:
        services.check_drain_reason(reason)
    except Invalid as error:
        return _page(request, node, StatsPeriod.DAY, reason[:200], error.fields["reason"])
    if form.get("confirmed") == "yes":
        services.drain_node(request.context, request.caller, node, reason)
        return redirect(request, heatmap.node_href(node), f"{node} is drained.")
    running = formatting.format_count(len(status.jobs), "job")
    running_text = f" {running} on it continue." if len(status.jobs) > 1 else ""
    running_text = " The job on it continues." if len(status.jobs) == 1 else running_text
    confirmation = Confirmation(
        question=f"Drain {node}?",
        consequence=f"No new jobs start on it until it is resumed.{running_text}",
        action=f"{heatmap.node_href(node)}/drain",
        label=f"Drain {node}",
        fields=(("confirmed", "yes"), ("reason", reason)),
        back=heatmap.node_href(node),
        items=(f"Reason, visible to all users: {reason}",),
    )
    return render_page(
        request, PageSpec("confirmation.html", f"Drain {node}", breadcrumbs=_breadcrumbs(node)), confirmation
    )


@router.post("/cluster/{node}/resume")
def resume_node(request: AdminDep, node: NodeName, form: FormDep) -> Response:
    """Needs a confirmation."""
    status = get_node_status(request.context, request.caller, node)
    if form.get("confirmed") == "yes":
        services.resume_node(request.context, request.caller, node)
        return redirect(request, heatmap.node_href(node), f"{node} accepts jobs again.")
    confirmation = Confirmation(
        question=f"Resume {node}?",
        consequence="Pending jobs may start on it immediately.",
        action=f"{heatmap.node_href(node)}/resume",
        label=f"Resume {node}",
        fields=(("confirmed", "yes"),),
        back=heatmap.node_href(node),
        items=(f"Reason of the drain: {status.node.reason}",) if status.node.reason else (),
    )
    return render_page(
        request, PageSpec("confirmation.html", f"Resume {node}", breadcrumbs=_breadcrumbs(node)), confirmation
    )


@router.post("/cluster/{node}/gpus/{number}/test")
def run_gpu_test(request: AdminDep, node: NodeName, number: GpuNumber) -> Response:
    """Takes up to two minutes."""
    test = gpus.run_gpu_test(request.context, request.caller, node, number)
    if test.passed:
        return redirect(request, heatmap.node_href(node), f"GPU {number} passed the test: jobs use it again.")
    failed = next((f"{step.name}: {step.detail}" for step in test.steps if step.passed is False), "a new error")
    return redirect(request, heatmap.node_href(node), f"GPU {number} failed the test ({failed}).")


@router.post("/cluster/{node}/gpus/{number}/resume")
def resume_gpu(request: AdminDep, node: NodeName, number: GpuNumber, form: FormDep) -> Response:
    gpus.resume_gpu(request.context, request.caller, node, number, form.get(f"reason-{number}"))
    return redirect(request, heatmap.node_href(node), f"Jobs use GPU {number} again.")


def _breadcrumbs(node: str) -> tuple[tuple[str, str], ...]:
    return ("Cluster", "/cluster"), (node, heatmap.node_href(node))


def _page(
    request: AuthenticatedRequest, name: str, span: StatsPeriod, reason: str = "", problem: str = ""
) -> Response:
    status = get_node_status(request.context, request.caller, name)
    page = PageSpec(
        "node.html",
        name,
        live_topics=("jobs", "nodes", "rules"),
        breadcrumbs=(("Cluster", "/cluster"),),
        status=422 if problem else 200,
    )
    return render_page(request, page, _view(request, status, span, (reason, problem)))


def _view(
    request: AuthenticatedRequest, status: NodeStatus, span: StatsPeriod, error: tuple[str, str]
) -> NodeView:
    node, now = status.node, request.context.now()
    is_part = "x-fragment" in request.http.headers  # the plots are not part of live updates
    series = () if is_part else node_stats(request.context, request.caller, node.name, span).series
    here = PageUrl(heatmap.node_href(node.name), {})
    history = gpus.list_gpu_history(request.context, request.caller, node.name)
    return NodeView(
        observed=status,
        gpu_history=tuple(_history(one) for one in history),
        href=here.path,
        devices=tuple(_device(status, one, now) for one in status.devices),
        labels=tuple(f"{name}={value}" if value else name for name, value in sorted(node.labels.items())),
        data_class=_data_class(node.data_class, node.min_data_class),
        spans=tuple(
            (
                one.value,
                here.with_query(span=None if one is StatsPeriod.DAY else one.value) + "#over-time",
                one is span,
            )
            for one in PLOT_SPANS
        ),
        span=span.value,
        plots=draw_node_plots(series, span, now, node),
        grafana_url=node_dashboard_url(request.context.settings, node.name, _SPAN_DAYS[span]),
        may_change=request.user.is_admin,
        is_drained=node.state is NodeState.DRAINED,
        reason=error[0],
        reason_error=error[1],
    )


def _history(history: gpus.GpuHistory) -> GpuHistoryRow:
    return GpuHistoryRow(
        history,
        history.record.used_seconds / 3600,
        gpus.describe_failure(history.record),
        tuple((one.at, describe_error(one.kind), one.job_id) for one in history.errors[:_MAX_ERRORS]),
    )


def _device(node: NodeStatus, status: DeviceStatus, now: datetime) -> DeviceRow:
    cell = heatmap.build_heatmap_cell(node, status, now)
    return DeviceRow(
        status, cell, heatmap.condition_name(status.condition), heatmap.describe_problem(node, status)
    )


def _data_class(highest: int, lowest: int) -> str:
    text = "0 (open data)" if not highest else f"up to {highest} (0 is open, 3 is secret)"
    return text if not lowest else f"{text}, at least {lowest}"
