"""One node: its devices, what runs there, what was used, and for admins taking it out of use."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from heliostat.errors import Invalid
from heliostat.models import NodeState
from heliostat.services.cluster import nodes as services
from heliostat.services.cluster.overview import DeviceStatus, NodeStatus, get_node_status
from heliostat.services.cluster.stats import StatsPeriod, node_stats
from heliostat.web import formatting, heatmap
from heliostat.web.heatmap import HeatmapCell
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AdminDep, AuthenticatedDep, AuthenticatedRequest, FormDep
from heliostat.web.usage_plots import PLOT_SPANS, UsagePlot, draw_node_plots
from heliostat.web.view_models import Confirmation, PageUrl

router = APIRouter()
NodeName = Annotated[str, Path(max_length=128)]
SpanText = Annotated[str, Query(max_length=20)]


@dataclass(frozen=True, slots=True)
class DeviceRow:
    observed: DeviceStatus
    cell: HeatmapCell
    condition: str
    problem: str


@dataclass(frozen=True, slots=True)
class NodeView:
    observed: NodeStatus
    href: str
    devices: tuple[DeviceRow, ...]
    labels: tuple[str, ...]
    data_class: str
    spans: tuple[tuple[str, str, bool], ...]
    span: str
    plots: tuple[UsagePlot, ...]
    may_change: bool
    is_drained: bool
    reason: str  # as typed, when it was refused
    reason_error: str


@router.get("/cluster/{node}")
def show_node(visit: AuthenticatedDep, node: NodeName, span: SpanText = "day") -> Response:
    if span not in [one.value for one in PLOT_SPANS]:
        raise Invalid(f"There is no span {span!a}.", "day, week or month.", fields={"span": "unknown"})
    return _page(visit, node, StatsPeriod(span))


@router.post("/cluster/{node}/drain")
def drain_node(visit: AdminDep, node: NodeName, form: FormDep) -> Response:
    """First it asks once more, then it does it."""
    reason = form.get("reason")
    seen = get_node_status(visit.context, visit.caller, node)
    try:
        services.check_drain_reason(reason)
    except Invalid as refused:
        return _page(visit, node, StatsPeriod.DAY, reason[:200], refused.fields["reason"])
    if form.get("confirmed") == "yes":
        services.drain_node(visit.context, visit.caller, node, reason)
        return redirect(visit, heatmap.node_href(node), f"Nothing new starts on {node}.")
    running = formatting.format_count(len(seen.jobs), "job")
    goes_on = f" {running} there go on to their end." if len(seen.jobs) > 1 else ""
    goes_on = " The job there goes on to its end." if len(seen.jobs) == 1 else goes_on
    question = Confirmation(
        question=f"Drain {node}?",
        consequence=f"Nothing new starts there until somebody resumes it.{goes_on}",
        action=f"{heatmap.node_href(node)}/drain",
        label=f"Drain {node}",
        fields=(("confirmed", "yes"), ("reason", reason)),
        back=heatmap.node_href(node),
        items=(f"Everybody will read: {reason}",),
    )
    return render_page(visit, PageSpec("confirmation.html", f"Drain {node}", breadcrumbs=_above(node)), question)


@router.post("/cluster/{node}/resume")
def resume_node(visit: AdminDep, node: NodeName, form: FormDep) -> Response:
    """The same, the other way round."""
    seen = get_node_status(visit.context, visit.caller, node)
    if form.get("confirmed") == "yes":
        services.resume_node(visit.context, visit.caller, node)
        return redirect(visit, heatmap.node_href(node), f"Jobs may start on {node} again.")
    question = Confirmation(
        question=f"Use {node} again?",
        consequence="Jobs that wait may start there at once.",
        action=f"{heatmap.node_href(node)}/resume",
        label=f"Resume {node}",
        fields=(("confirmed", "yes"),),
        back=heatmap.node_href(node),
        items=(f"It was drained: {seen.node.reason}",) if seen.node.reason else (),
    )
    return render_page(visit, PageSpec("confirmation.html", f"Resume {node}", breadcrumbs=_above(node)), question)


def _above(node: str) -> tuple[tuple[str, str], ...]:
    return ("Cluster", "/cluster"), (node, heatmap.node_href(node))


def _page(
    visit: AuthenticatedRequest, name: str, span: StatsPeriod, reason: str = "", problem: str = ""
) -> Response:
    seen = get_node_status(visit.context, visit.caller, name)
    page = PageSpec(
        "node.html",
        name,
        live_topics=("jobs", "nodes", "rules"),
        breadcrumbs=(("Cluster", "/cluster"),),
        status=422 if problem else 200,
    )
    return render_page(visit, page, _view(visit, seen, span, (reason, problem)))


def _view(visit: AuthenticatedRequest, seen: NodeStatus, span: StatsPeriod, refused: tuple[str, str]) -> NodeView:
    node, now = seen.node, visit.context.now()
    is_part = "x-fragment" in visit.request.headers  # the plots do not follow live
    series = () if is_part else node_stats(visit.context, visit.caller, node.name, span).series
    here = PageUrl(heatmap.node_href(node.name), {})
    return NodeView(
        observed=seen,
        href=here.path,
        devices=tuple(_device(seen, one, now) for one in seen.devices),
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
        plots=draw_node_plots(series, span, now, (node.cpus, node.memory_mib)),
        may_change=visit.user.is_admin,
        is_drained=node.state is NodeState.DRAINED,
        reason=refused[0],
        reason_error=refused[1],
    )


def _device(node: NodeStatus, seen: DeviceStatus, now: datetime) -> DeviceRow:
    cell = heatmap.build_heatmap_cell(node, seen, now)
    return DeviceRow(seen, cell, heatmap.condition_name(seen.condition), heatmap.describe_problem(node, seen))


def _data_class(cleared: int, least: int) -> str:
    upto = "open data only (class 0)" if not cleared else f"data up to class {cleared} (0 is open, 3 secret)"
    return upto if not least else f"{upto}, kept for class {least} and above"
