"""Cluster page: GPU map, demand by project, usage over time, and the list of nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from markupsafe import Markup
from starlette.responses import Response

from heliostat.errors import Invalid
from heliostat.models import count_cards
from heliostat.services.cluster.overview import (
    ClusterOverview,
    DeviceCondition,
    DeviceStatus,
    NodeReservation,
    NodeStatus,
    ProjectDemand,
    demand_by_project,
    get_cluster_overview,
    list_node_statuses,
)
from heliostat.services.cluster.stats import StatsPeriod, cluster_stats
from heliostat.web import formatting, heatmap, svg_plots
from heliostat.web.heatmap import HeatmapNode
from heliostat.web.rendering import PageSpec, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest
from heliostat.web.usage_plots import PLOT_SPANS, UsagePlot, draw_cluster_plots
from heliostat.web.view_models import Pager, PageUrl, build_pager

router = APIRouter()
FilterText = Annotated[str, Query(max_length=128, pattern=r"^[^\x00]*$")]
PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]
_PAGE_SIZE = 50
_MAX_PROJECTS = 12


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A condition in the legend with its GPU count; the link filters by it."""

    condition: str
    name: str
    meaning: str
    count: int
    href: str
    is_selected: bool


@dataclass(frozen=True, slots=True)
class ClusterNodeRow:
    observed: NodeStatus
    href: str
    types: str
    labels: tuple[str, ...]
    cpu_bar: Markup
    memory_bar: Markup
    reservations: tuple[NodeReservation, ...]


@dataclass(frozen=True, slots=True)
class DemandRow:
    demand: ProjectDemand
    bar: Markup


@dataclass(frozen=True, slots=True)
class ClusterFilters:
    type: str
    state: str
    label: str
    type_options: tuple[tuple[str, str], ...]
    state_options: tuple[tuple[str, str], ...]
    label_options: tuple[tuple[str, str], ...]
    clear_url: str

    @property
    def is_active(self) -> bool:
        return bool(self.type or self.state or self.label)


@dataclass(frozen=True, slots=True)
class ClusterView:
    overview: ClusterOverview
    mean_utilisation: float | None  # current mean of all GPUs, 0 … 1
    legend: tuple[LegendEntry, ...]
    filters: ClusterFilters
    cell_size: str
    heatmap_nodes: tuple[HeatmapNode, ...]
    shown_gpus: float
    total_gpus: float
    demand: tuple[DemandRow, ...]
    more_projects: int
    spans: tuple[tuple[str, str, bool], ...]  # name, URL, is it selected
    span: str
    plots: tuple[UsagePlot, ...]
    rows: tuple[ClusterNodeRow, ...]
    pager: Pager


@dataclass(frozen=True, slots=True)
class _ClusterQuery:
    type: str
    state: str
    label: str
    span: StatsPeriod
    page: int

    @property
    def address(self) -> PageUrl:
        span = "" if self.span is StatsPeriod.DAY else self.span.value
        return PageUrl("/cluster", {"type": self.type, "state": self.state, "label": self.label, "span": span})


@router.get("/cluster")
def show_cluster(
    request: AuthenticatedDep,
    type: FilterText = "",  # noqa: A002 - name of the query parameter
    state: FilterText = "",
    label: FilterText = "",
    span: FilterText = "day",
    page: PageNumber = 1,
) -> Response:
    if state not in ("", *DeviceCondition):
        raise Invalid(
            f"Unknown state {state[:40]!a}.", "Choose a state from the list.", fields={"state": "unknown"}
        )
    if span not in [one.value for one in PLOT_SPANS]:
        raise Invalid(f"Unknown span {span[:40]!a}.", "Use day, week or month.", fields={"span": "unknown"})
    filters = _ClusterQuery(type.strip(), state, label.strip(), StatsPeriod(span), page)
    view = _view(request, filters)
    # With thousands of GPUs, jobs change all the time: the page then polls instead of following job events.
    topics = ("nodes", "rules") if view.cell_size == "small" else ("jobs", "nodes", "rules")
    return render_page(request, PageSpec("cluster.html", "Cluster", live_topics=topics), view)


def _view(request: AuthenticatedRequest, filters: _ClusterQuery) -> ClusterView:
    now, nodes = request.context.now(), list_node_statuses(request.context, request.caller)
    matching = [(node, devices) for node in nodes if (devices := _matching_devices(node, filters)) is not None]
    demand = demand_by_project(request.context)
    rows, pages = _rows([node for node, _ in matching], filters)
    count = sum(len(devices) for _, devices in matching)
    return ClusterView(
        overview=get_cluster_overview(request.context),
        mean_utilisation=_mean_utilisation(nodes),
        legend=_legend(nodes, filters),
        filters=_filters(nodes, filters),
        cell_size=heatmap.cell_size(count),
        heatmap_nodes=tuple(
            heatmap.build_heatmap_node(node, devices, now) for node, devices in matching if devices
        ),
        shown_gpus=count_cards(status.device for _, devices in matching for status in devices),
        total_gpus=count_cards(device for node in nodes for device in node.node.devices),
        demand=_demand_rows(demand),
        more_projects=max(0, len(demand) - _MAX_PROJECTS),
        spans=tuple((one.value, _span_href(filters.address, one), one is filters.span) for one in PLOT_SPANS),
        span=filters.span.value,
        plots=_plots(request, filters.span),
        rows=rows,
        pager=pages,
    )


def _filters(nodes: Sequence[NodeStatus], filters: _ClusterQuery) -> ClusterFilters:
    return ClusterFilters(
        type=filters.type,
        state=filters.state,
        label=filters.label,
        type_options=_options({device.type for node in nodes for device in node.node.devices}, filters.type),
        state_options=(("", "any"), *((one.value, heatmap.condition_name(one)) for one in DeviceCondition)),
        label_options=_options({text for node in nodes for text in _labels(node)}, filters.label),
        clear_url=filters.address.with_query(type=None, state=None, label=None),
    )


def _plots(request: AuthenticatedRequest, span: StatsPeriod) -> tuple[UsagePlot, ...]:
    """The plots are not part of live updates."""
    if "x-fragment" in request.http.headers:
        return ()
    return draw_cluster_plots(
        cluster_stats(request.context, request.caller, span).series, span, request.context.now()
    )


def _span_href(url: PageUrl, span: StatsPeriod) -> str:
    return url.with_query(span=None if span is StatsPeriod.DAY else span.value) + "#over-time"


def _matching_devices(node: NodeStatus, filters: _ClusterQuery) -> tuple[DeviceStatus, ...] | None:
    """The devices that match the filters; None: the node does not match."""
    if filters.label and filters.label not in _labels(node):
        return None
    devices = tuple(
        status
        for status in node.devices
        if filters.type in ("", status.device.type) and filters.state in ("", status.condition.value)
    )
    return None if not devices and (filters.type or filters.state) else devices


def _labels(node: NodeStatus) -> list[str]:
    return [f"{name}={value}" if value else name for name, value in sorted(node.node.labels.items())]


def _options(found: set[str], matching: str) -> tuple[tuple[str, str], ...]:
    return (("", "any"), *((text, text) for text in sorted(found | ({matching} if matching else set()))))


def _legend(nodes: Sequence[NodeStatus], filters: _ClusterQuery) -> tuple[LegendEntry, ...]:
    counts = heatmap.count_by_condition(nodes)
    return tuple(
        LegendEntry(
            condition=one.value,
            name=heatmap.condition_name(one),
            meaning=heatmap.CONDITION_MEANINGS[one],
            count=counts[one],
            href=filters.address.with_query(state=None if filters.state == one.value else one.value),
            is_selected=filters.state == one.value,
        )
        for one in DeviceCondition
    )


def _mean_utilisation(nodes: Sequence[NodeStatus]) -> float | None:
    known = [
        status.device.utilisation
        for node in nodes
        for status in node.devices
        if status.device.utilisation is not None and status.condition is not DeviceCondition.FAULTY
    ]
    return sum(known) / len(known) / 100 if known else None


def _demand_rows(demand: Sequence[ProjectDemand]) -> tuple[DemandRow, ...]:
    """The longest bar fills the width."""
    maximum = max((one.running_gpus + one.pending_gpus for one in demand), default=0.0) or 1.0
    return tuple(DemandRow(one, _demand_bar(one, maximum)) for one in demand[:_MAX_PROJECTS])


def _demand_bar(one: ProjectDemand, maximum: float) -> Markup:
    running, pending = (100 * gpus / maximum for gpus in (one.running_gpus, one.pending_gpus))
    return Markup(
        '<svg class="demand" viewBox="0 0 100 10" preserveAspectRatio="none" role="img"><title>{}</title>'
        '<rect class="demand-running" width="{:.2f}" height="10"></rect>'
        '<rect class="demand-pending" x="{:.2f}" width="{:.2f}" height="10"></rect></svg>'
    ).format(
        f"{one.project}: {formatting.format_number(one.running_gpus)} GPUs running,"
        f" {formatting.format_number(one.pending_gpus)} pending",
        running,
        running,
        pending,
    )


def _rows(nodes: Sequence[NodeStatus], filters: _ClusterQuery) -> tuple[tuple[ClusterNodeRow, ...], Pager]:
    number = min(filters.page, max(1, -(-len(nodes) // _PAGE_SIZE)))
    part = nodes[(number - 1) * _PAGE_SIZE : number * _PAGE_SIZE]
    return tuple(_row(node) for node in part), build_pager(filters.address, number, _PAGE_SIZE, len(nodes))


def _row(status: NodeStatus) -> ClusterNodeRow:
    node = status.node
    cpus, memory = status.allocated_cpus / max(1, node.cpus), status.allocated_memory_mib / max(1, node.memory_mib)
    return ClusterNodeRow(
        observed=status,
        href=heatmap.node_href(node.name),
        types=", ".join(dict.fromkeys(device.type for device in node.devices)),
        labels=tuple(_labels(status)),
        cpu_bar=svg_plots.draw_bar(cpus, f"{status.allocated_cpus} of {node.cpus} CPUs allocated"),
        memory_bar=svg_plots.draw_bar(memory, f"{formatting.format_percent(memory)} of the memory allocated", 3),
        reservations=status.reservations,
    )
