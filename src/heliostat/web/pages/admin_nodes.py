"""Nodes, for admins: drain and resume them, and say what they are for."""

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
_WRONG = (BadRequest, Conflict)
_LONGEST_LABELS = 10_000


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
def show_nodes(visit: AdminDep, q: SearchText = "", page: PageNumber = 1) -> Response:
    wanted = q.strip().lower()
    rows = [row for row in map(_row, visit.context.node_inventory.fresh_nodes()) if _fits(row, wanted)]
    shown, pages = paginate(rows, PageUrl("/admin/nodes", {"q": q.strip()}), page)
    view = AdminNodesView(q.strip(), tuple(shown), pages)
    return render_page(visit, PageSpec("admin/nodes.html", "Nodes", live_topics=("nodes",)), view)


@router.get("/admin/nodes/{name}")
def show_node(visit: AdminDep, name: NameParam) -> Response:
    node = services.get_node(visit.context, name)
    return _node_page(visit, node, FormState(_values(node)))


@router.post("/admin/nodes/{name}/drain")
def drain_node(visit: AdminDep, name: NameParam, form: FormDep) -> Response:
    node = services.get_node(visit.context, name)
    try:
        reading = FormReader(form)
        reason = reading.read_line("reason", needed=True)
        reading.raise_if_invalid()
        services.drain_node(visit.context, visit.caller, name, reason)
    except _WRONG as error:
        return _node_page(visit, node, form_with_errors(form, error, _values(node)))
    return redirect(visit, _path(node), f"{name} is drained: nothing new starts there, what runs goes on.")


@router.post("/admin/nodes/{name}/resume")
def resume_node(visit: AdminDep, name: NameParam, form: FormDep) -> Response:
    node = services.resume_node(visit.context, visit.caller, name)
    return redirect(visit, _path(node), f"{name} takes jobs again.")


@router.post("/admin/nodes/{name}/set")
def update_node(visit: AdminDep, name: NameParam, form: FormDep) -> Response:
    node = services.get_node(visit.context, name)
    try:
        reading = FormReader(form)
        wish = NodeChange(
            labels=_label_changes(node, form.get("labels")),
            data_class=reading.read_integer("data_class", 0, MAX_DATA_CLASS),
            min_data_class=reading.read_integer("min_data_class", 0, MAX_DATA_CLASS),
            splits_devices=form.get("splits_devices") == "yes",
        )
        reading.raise_if_invalid()
        _, note = services.update_node(visit.context, visit.caller, name, wish)
    except _WRONG as error:
        return _node_page(visit, node, form_with_errors(form, error, _values(node)))
    return redirect(visit, _path(node), f"Saved. {note}" if note else "Saved.", "note" if note else "good")


def _label_changes(node: Node, text: str) -> dict[str, str | None]:
    """From lines of name=value: what is new or different, and None for what is no longer there."""
    if len(text) > _LONGEST_LABELS:
        raise invalid_field("labels", "are too long")
    given: dict[str, str] = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, _, value = (part.strip() for part in line.partition("="))
        if name in given:
            raise invalid_field("labels", f"{name[:64]} is there twice")
        given[name] = value
    gone = dict.fromkeys(node.labels.keys() - given.keys())
    return {**gone, **{name: value for name, value in given.items() if node.labels.get(name) != value}}


def _row(node: Node) -> AdminNodeRow:
    kinds = sorted({device.type for device in node.devices})
    bad = [device for device in node.devices if not device.is_available]
    least, most = node.min_data_class, node.data_class
    trouble = "; ".join(f"GPU {device.index}: {device.problem or device.used_outside}" for device in bad)
    return AdminNodeRow(
        node=node,
        gpus=f"{len(node.devices)} {', '.join(kinds)}" if node.devices else "",
        data_classes=f"{least} to {most}" if least else f"up to {most}",
        labels=", ".join(f"{name}={value}" if value else name for name, value in sorted(node.labels.items())),
        gpu_problems=trouble,
    )


def _fits(row: AdminNodeRow, wanted: str) -> bool:
    texts = (row.node.name, row.node.state.value, row.node.reason or "", row.gpus, row.labels)
    return not wanted or any(wanted in text.lower() for text in texts)


def _values(node: Node) -> Mapping[str, str]:
    labels = (f"{name}={value}" if value else name for name, value in sorted(node.labels.items()))
    return {
        "reason": node.reason or "" if node.state is NodeState.DRAINED else "",
        "labels": "\n".join(labels),
        "data_class": str(node.data_class),
        "min_data_class": str(node.min_data_class),
        "splits_devices": "yes" if node.splits_devices else "no",
    }


def _node_page(visit: AuthenticatedRequest, node: Node, form: FormState) -> Response:
    splits = (("no", "no: each GPU for one job"), ("yes", "yes: jobs may ask for a part of one"))
    view = AdminNodeView(_row(node), DATA_CLASS_OPTIONS, splits, form)
    page = PageSpec("admin/node.html", node.name, breadcrumbs=(ADMIN_BREADCRUMB, _NODES), status=form.status)
    return render_page(visit, page, view)


def _path(node: Node) -> str:
    return f"/admin/nodes/{quote(node.name)}"
