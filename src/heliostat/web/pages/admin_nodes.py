"""Admin pages: drain and resume nodes, and set their labels and data classes."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from fastapi import APIRouter
from starlette.responses import Response

from heliostat.errors import BadRequest, Conflict, invalid_field
from heliostat.models import Node, NodeState
from heliostat.services.accounts.data_classes import MAX_DATA_CLASS
from heliostat.services.cluster import nodes as services
from heliostat.services.cluster.nodes import NodeChange
from heliostat.web.admin_fields import (
    ADMIN_BREADCRUMB,
    DATA_CLASS_OPTIONS,
    NameParam,
    PageNumber,
    SearchText,
    paginate,
)
from heliostat.web.forms import FormReader, FormState, form_with_errors
from heliostat.web.rendering import PageSpec, redirect, render_page
from heliostat.web.request_context import AdminDep, AuthenticatedRequest, FormDep
from heliostat.web.view_models import Pager, PageUrl

router = APIRouter()
_NODES = ("Nodes", "/admin/nodes")
_FORM_ERRORS = (BadRequest, Conflict)
_MAX_LABELS_LENGTH = 10_000


@dataclass(frozen=True, slots=True)
class AdminNodeRow:
    node: Node
    gpus: str
    data_classes: str
    labels: str
    gpu_problems: str  # of its GPUs


@dataclass(frozen=True, slots=True)
class AdminNodesView:
    search_text: str
    rows: tuple[AdminNodeRow, ...]
    pager: Pager


@dataclass(frozen=True, slots=True)
class AdminNodeView:
    row: AdminNodeRow
    data_class_options: tuple[tuple[str, str], ...]
    gpu_sharing_options: tuple[tuple[str, str], ...]
    form: FormState


@router.get("/admin/nodes")
def show_nodes(request: AdminDep, q: SearchText = "", page: PageNumber = 1) -> Response:
    search = q.strip().lower()
    rows = [row for row in map(_row, request.context.node_inventory.fresh_nodes()) if _matches(row, search)]
    shown, pages = paginate(rows, PageUrl("/admin/nodes", {"q": q.strip()}), page)
    view = AdminNodesView(q.strip(), tuple(shown), pages)
    return render_page(request, PageSpec("admin/nodes.html", "Nodes", live_topics=("nodes",)), view)


@router.get("/admin/nodes/{name}")
def show_node(request: AdminDep, name: NameParam) -> Response:
    node = services.get_node(request.context, name)
    return _node_page(request, node, FormState(_values(node)))


@router.post("/admin/nodes/{name}/drain")
def drain_node(request: AdminDep, name: NameParam, form: FormDep) -> Response:
    node = services.get_node(request.context, name)
    try:
        reader = FormReader(form)
        reason = reader.read_line("reason", required=True)
        reader.raise_if_invalid()
        services.drain_node(request.context, request.caller, name, reason)
    except _FORM_ERRORS as error:
        return _node_page(request, node, form_with_errors(form, error, _values(node)))
    return redirect(request, _path(node), f"{name} is drained: no new jobs start there, running jobs continue.")


@router.post("/admin/nodes/{name}/resume")
def resume_node(request: AdminDep, name: NameParam, form: FormDep) -> Response:
    node = services.resume_node(request.context, request.caller, name)
    return redirect(request, _path(node), f"{name} accepts jobs again.")


@router.post("/admin/nodes/{name}/set")
def update_node(request: AdminDep, name: NameParam, form: FormDep) -> Response:
    node = services.get_node(request.context, name)
    try:
        reader = FormReader(form)
        change = NodeChange(
            labels=_label_changes(node, form.get("labels")),
            data_class=reader.read_integer("data_class", 0, MAX_DATA_CLASS),
            min_data_class=reader.read_integer("min_data_class", 0, MAX_DATA_CLASS),
            splits_devices=form.get("splits_devices") == "yes",
        )
        reader.raise_if_invalid()
        _, note = services.update_node(request.context, request.caller, name, change)
    except _FORM_ERRORS as error:
        return _node_page(request, node, form_with_errors(form, error, _values(node)))
    return redirect(request, _path(node), f"Saved. {note}" if note else "Saved.", "note" if note else "good")


def _label_changes(node: Node, text: str) -> dict[str, str | None]:
    """From lines of name=value: new and changed labels, and None for removed ones."""
    if len(text) > _MAX_LABELS_LENGTH:
        raise invalid_field("labels", "are too long")
    labels: dict[str, str] = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, _, value = (part.strip() for part in line.partition("="))
        if name in labels:
            raise invalid_field("labels", f"{name[:64]} is set twice")
        labels[name] = value
    gone = dict.fromkeys(node.labels.keys() - labels.keys())
    return {**gone, **{name: value for name, value in labels.items() if node.labels.get(name) != value}}


def _row(node: Node) -> AdminNodeRow:
    types = sorted({device.type for device in node.devices})
    unavailable = [device for device in node.devices if not device.is_available]
    lowest, highest = node.min_data_class, node.data_class
    problems = "; ".join(f"GPU {device.number}: {device.problem or device.used_outside}" for device in unavailable)
    return AdminNodeRow(
        node=node,
        gpus=f"{len(node.devices)} {', '.join(types)}" if node.devices else "",
        data_classes=f"{lowest} to {highest}" if lowest else f"up to {highest}",
        labels=", ".join(f"{name}={value}" if value else name for name, value in sorted(node.labels.items())),
        gpu_problems=problems,
    )


def _matches(row: AdminNodeRow, search: str) -> bool:
    texts = (row.node.name, row.node.state.value, row.node.reason or "", row.gpus, row.labels)
    return not search or any(search in text.lower() for text in texts)


def _values(node: Node) -> Mapping[str, str]:
    labels = (f"{name}={value}" if value else name for name, value in sorted(node.labels.items()))
    return {
        "reason": node.reason or "" if node.state is NodeState.DRAINED else "",
        "labels": "\n".join(labels),
        "data_class": str(node.data_class),
        "min_data_class": str(node.min_data_class),
        "splits_devices": "yes" if node.splits_devices else "no",
    }


def _node_page(request: AuthenticatedRequest, node: Node, form: FormState) -> Response:
    sharing_options = (("no", "off: one job per GPU"), ("yes", "on: jobs may request a fraction of a GPU"))
    view = AdminNodeView(_row(node), DATA_CLASS_OPTIONS, sharing_options, form)
    page = PageSpec("admin/node.html", node.name, breadcrumbs=(ADMIN_BREADCRUMB, _NODES), status=form.status)
    return render_page(request, page, view)


def _path(node: Node) -> str:
    return f"/admin/nodes/{quote(node.name)}"
