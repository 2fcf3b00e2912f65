"""The cluster: every GPU on a map, who wants how many, what was used over time, and every node."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from markupsafe import Markup
from starlette.responses import Response

from heliostat.errors import Invalid
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
_ROWS = 50
_PROJECTS = 12


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """A condition in the legend, with how many there are; a click shows only these."""

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
    mean_utilisation: float | None  # the mean utilisation of all GPUs now, a part of 1
    legend: tuple[LegendEntry, ...]
    filters: ClusterFilters
    cell_size: str
    heatmap_nodes: tuple[HeatmapNode, ...]
    shown_gpus: int
    total_gpus: int
    demand: tuple[DemandRow, ...]
    more_projects: int
    spans: tuple[tuple[str, str, bool], ...]  # name, address, is it shown
    span: str
    plots: tuple[UsagePlot, ...]
    rows: tuple[ClusterNodeRow, ...]
    pager: Pager


@dataclass(frozen=True, slots=True)
class _Asked:
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
    visit: AuthenticatedDep,
    type: FilterText = "",  # noqa: A002 - its name in the address
    state: FilterText = "",
    label: FilterText = "",
    span: FilterText = "day",
    page: PageNumber = 1,
) -> Response:
    if state not in ("", *DeviceCondition):
        raise Invalid(f"There is no state {state[:40]!a}.", "Choose one of the list.", fields={"state": "unknown"})
    if span not in [one.value for one in PLOT_SPANS]:
        raise Invalid(f"There is no span {span[:40]!a}.", "day, week or month.", fields={"span": "unknown"})
    asked = _Asked(type.strip(), state, label.strip(), StatsPeriod(span), page)
    view = _view(visit, asked)
    # Where thousands of GPUs are drawn, jobs begin and end all the time: such a page looks by itself now and then.
    topics = ("nodes", "rules") if view.cell_size == "small" else ("jobs", "nodes", "rules")
    return render_page(visit, PageSpec("cluster.html", "Cluster", live_topics=topics), view)


def _view(visit: AuthenticatedRequest, asked: _Asked) -> ClusterView:
    now, nodes = visit.context.now(), list_node_statuses(visit.context, visit.caller)
    chosen = [(node, devices) for node in nodes if (devices := _chosen(node, asked)) is not None]
    demand = demand_by_project(visit.context)
    rows, pages = _rows([node for node, _ in chosen], asked)
    count = sum(len(devices) for _, devices in chosen)
    return ClusterView(
        overview=get_cluster_overview(visit.context),
        mean_utilisation=_mean_use(nodes),
        legend=_kinds(nodes, asked),
        filters=_filters(nodes, asked),
        cell_size=heatmap.cell_size(count),
        heatmap_nodes=tuple(heatmap.build_heatmap_node(node, devices, now) for node, devices in chosen if devices),
        shown_gpus=count,
        total_gpus=sum(len(node.devices) for node in nodes),
        demand=_demand_rows(demand),
        more_projects=max(0, len(demand) - _PROJECTS),
        spans=tuple((one.value, _span_href(asked.address, one), one is asked.span) for one in PLOT_SPANS),
        span=asked.span.value,
        plots=_plots(visit, asked.span),
        rows=rows,
        pager=pages,
    )


def _filters(nodes: Sequence[NodeStatus], asked: _Asked) -> ClusterFilters:
    return ClusterFilters(
        type=asked.type,
        state=asked.state,
        label=asked.label,
        type_options=_options({device.type for node in nodes for device in node.node.devices}, asked.type),
        state_options=(("", "any"), *((one.value, heatmap.condition_name(one)) for one in DeviceCondition)),
        label_options=_options({text for node in nodes for text in _labels(node)}, asked.label),
        clear_url=asked.address.with_query(type=None, state=None, label=None),
    )


def _plots(visit: AuthenticatedRequest, span: StatsPeriod) -> tuple[UsagePlot, ...]:
    """They do not follow live."""
    if "x-fragment" in visit.request.headers:
        return ()
    return draw_cluster_plots(cluster_stats(visit.context, visit.caller, span).series, span, visit.context.now())


def _span_href(here: PageUrl, span: StatsPeriod) -> str:
    return here.with_query(span=None if span is StatsPeriod.DAY else span.value) + "#over-time"


def _chosen(node: NodeStatus, asked: _Asked) -> tuple[DeviceStatus, ...] | None:
    """The devices that fit the filters; None: nor does the node itself."""
    if asked.label and asked.label not in _labels(node):
        return None
    fitting = tuple(
        seen
        for seen in node.devices
        if asked.type in ("", seen.device.type) and asked.state in ("", seen.condition.value)
    )
    return None if not fitting and (asked.type or asked.state) else fitting


def _labels(node: NodeStatus) -> list[str]:
    return [f"{name}={value}" if value else name for name, value in sorted(node.node.labels.items())]


def _options(found: set[str], chosen: str) -> tuple[tuple[str, str], ...]:
    return (("", "any"), *((text, text) for text in sorted(found | ({chosen} if chosen else set()))))


def _kinds(nodes: Sequence[NodeStatus], asked: _Asked) -> tuple[LegendEntry, ...]:
    numbers = heatmap.count_by_condition(nodes)
    return tuple(
        LegendEntry(
            condition=one.value,
            name=heatmap.condition_name(one),
            meaning=heatmap.CONDITION_MEANINGS[one],
            count=numbers[one],
            href=asked.address.with_query(state=None if asked.state == one.value else one.value),
            is_selected=asked.state == one.value,
        )
        for one in DeviceCondition
    )


def _mean_use(nodes: Sequence[NodeStatus]) -> float | None:
    known = [
        seen.device.utilisation
        for node in nodes
        for seen in node.devices
        if seen.device.utilisation is not None and seen.condition is not DeviceCondition.FAULTY
    ]
    return sum(known) / len(known) / 100 if known else None


def _demand_rows(demand: Sequence[ProjectDemand]) -> tuple[DemandRow, ...]:
    """The longest bar fills the width."""
    most = max((one.running_gpus + one.pending_gpus for one in demand), default=0.0) or 1.0
    return tuple(DemandRow(one, _demand_bar(one, most)) for one in demand[:_PROJECTS])


def _demand_bar(one: ProjectDemand, most: float) -> Markup:
    running, pending = (100 * gpus / most for gpus in (one.running_gpus, one.pending_gpus))
    return Markup(
        '<svg class="demand" viewBox="0 0 100 10" preserveAspectRatio="none" role="img"><title>{}</title>'
        '<rect class="demand-running" width="{:.2f}" height="10"></rect>'
        '<rect class="demand-pending" x="{:.2f}" width="{:.2f}" height="10"></rect></svg>'
    ).format(
        f"{one.project}: {formatting.format_number(one.running_gpus)} GPUs running,"
        f" {formatting.format_number(one.pending_gpus)} wanted",
        running,
        running,
        pending,
    )


def _rows(nodes: Sequence[NodeStatus], asked: _Asked) -> tuple[tuple[ClusterNodeRow, ...], Pager]:
    number = min(asked.page, max(1, -(-len(nodes) // _ROWS)))
    part = nodes[(number - 1) * _ROWS : number * _ROWS]
    return tuple(_row(node) for node in part), build_pager(asked.address, number, _ROWS, len(nodes))


def _row(seen: NodeStatus) -> ClusterNodeRow:
    node = seen.node
    cpus, memory = seen.allocated_cpus / max(1, node.cpus), seen.allocated_memory_mib / max(1, node.memory_mib)
    return ClusterNodeRow(
        observed=seen,
        href=heatmap.node_href(node.name),
        types=", ".join(dict.fromkeys(device.type for device in node.devices)),
        labels=tuple(_labels(seen)),
        cpu_bar=svg_plots.draw_bar(cpus, f"{seen.allocated_cpus} of {node.cpus} cpus given to jobs"),
        memory_bar=svg_plots.draw_bar(
            memory, f"{formatting.format_percent(memory)} of the memory given to jobs", 3
        ),
        reservations=seen.reservations,
    )
