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
from heliostat.web.admin import ADMIN, CLASSES, Name, PageNumber, Text, paged
from heliostat.web.forms import Filled, Reading, refused
from heliostat.web.rendering import Page, redirect, render
from heliostat.web.views import Address, Pager
from heliostat.web.visits import AdminDep, FormDep, Visit

router = APIRouter()
_NODES = ("Nodes", "/admin/nodes")
_WRONG = (BadRequest, Conflict)
_LONGEST_LABELS = 10_000


@dataclass(frozen=True, slots=True)
class NodeRow:
    node: Node
    gpus: str
    classes: str
    labels: str
    trouble: str  # of its GPUs


@dataclass(frozen=True, slots=True)
class NodesView:
    q: str
    rows: tuple[NodeRow, ...]
    pager: Pager


@dataclass(frozen=True, slots=True)
class NodeView:
    row: NodeRow
    classes: tuple[tuple[str, str], ...]
    splits: tuple[tuple[str, str], ...]
    form: Filled


@router.get("/admin/nodes")
def show_nodes(visit: AdminDep, q: Text = "", page: PageNumber = 1) -> Response:
    wanted = q.strip().lower()
    rows = [row for row in map(_row, visit.context.node_inventory.fresh_nodes()) if _fits(row, wanted)]
    shown, pages = paged(rows, Address("/admin/nodes", {"q": q.strip()}), page)
    view = NodesView(q.strip(), tuple(shown), pages)
    return render(visit, Page("admin/nodes.html", "Nodes", live=("nodes",)), view)


@router.get("/admin/nodes/{name}")
def show_node(visit: AdminDep, name: Name) -> Response:
    node = services.get_node(visit.context, name)
    return _node_page(visit, node, Filled(_values(node)))


@router.post("/admin/nodes/{name}/drain")
def drain_node(visit: AdminDep, name: Name, form: FormDep) -> Response:
    node = services.get_node(visit.context, name)
    try:
        reading = Reading(form)
        reason = reading.line("reason", needed=True)
        reading.check()
        services.drain_node(visit.context, visit.caller, name, reason)
    except _WRONG as error:
        return _node_page(visit, node, refused(form, error, _values(node)))
    return redirect(visit, _path(node), f"{name} is drained: nothing new starts there, what runs goes on.")


@router.post("/admin/nodes/{name}/resume")
def resume_node(visit: AdminDep, name: Name, form: FormDep) -> Response:
    node = services.resume_node(visit.context, visit.caller, name)
    return redirect(visit, _path(node), f"{name} takes jobs again.")


@router.post("/admin/nodes/{name}/set")
def change_node(visit: AdminDep, name: Name, form: FormDep) -> Response:
    node = services.get_node(visit.context, name)
    try:
        reading = Reading(form)
        wish = NodeChange(
            labels=_label_changes(node, form.get("labels")),
            data_class=reading.whole("data_class", 0, MAX_DATA_CLASS),
            min_data_class=reading.whole("min_data_class", 0, MAX_DATA_CLASS),
            splits_devices=form.get("splits_devices") == "yes",
        )
        reading.check()
        _, note = services.update_node(visit.context, visit.caller, name, wish)
    except _WRONG as error:
        return _node_page(visit, node, refused(form, error, _values(node)))
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


def _row(node: Node) -> NodeRow:
    kinds = sorted({device.type for device in node.devices})
    bad = [device for device in node.devices if not device.is_available]
    least, most = node.min_data_class, node.data_class
    trouble = "; ".join(f"GPU {device.index}: {device.problem or device.used_outside}" for device in bad)
    return NodeRow(
        node=node,
        gpus=f"{len(node.devices)} {', '.join(kinds)}" if node.devices else "",
        classes=f"{least} to {most}" if least else f"up to {most}",
        labels=", ".join(f"{name}={value}" if value else name for name, value in sorted(node.labels.items())),
        trouble=trouble,
    )


def _fits(row: NodeRow, wanted: str) -> bool:
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


def _node_page(visit: Visit, node: Node, form: Filled) -> Response:
    splits = (("no", "no: each GPU for one job"), ("yes", "yes: jobs may ask for a part of one"))
    view = NodeView(_row(node), CLASSES, splits, form)
    page = Page("admin/node.html", node.name, crumbs=(ADMIN, _NODES), status=form.status)
    return render(visit, page, view)


def _path(node: Node) -> str:
    return f"/admin/nodes/{quote(node.name)}"
