from dataclasses import replace

import pytest

from heliostat.errors import Forbidden, Invalid, NotFound
from heliostat.models import NodeState
from heliostat.services.cluster.nodes import NodeChange, drain_node, get_node, resume_node, update_node
from unit.services.site import Site


def test_a_change_leaves_other_settings_of_the_node(site: Site) -> None:
    wish = NodeChange({"disk": "ssd", "fast": ""}, data_class=3, min_data_class=2, splits_devices=True)
    update_node(site.context, site.root, "n1", wish)
    node, _ = update_node(site.context, site.root, "n1", NodeChange(data_class=2))
    assert node.labels == {"bought": "2024", "disk": "ssd", "fast": ""}
    assert (node.data_class, node.min_data_class, node.splits_devices) == (2, 2, True)
    assert node in site.context.node_inventory.nodes()
    assert site.audit()[0].detail == {"data_class": [3, 2]}


def test_drain_and_resume_do_not_change_settings(site: Site) -> None:
    set_once, _ = update_node(site.context, site.root, "n1", NodeChange({"fast": ""}, 1))
    drained = drain_node(site.context, site.root, "n1", "new disk")
    assert drained == replace(set_once, state=NodeState.DRAINED, reason="new disk")
    set_again, _ = update_node(site.context, site.root, "n1", NodeChange({"fast": None}, splits_devices=True))
    assert (set_again.state, set_again.reason) == (NodeState.DRAINED, "new disk")
    resumed = resume_node(site.context, site.root, "n1")
    assert resumed == replace(set_again, state=NodeState.UP, reason=None)
    assert (resumed.labels, resumed.data_class, resumed.splits_devices) == ({"bought": "2024"}, 1, True)


def test_reported_values_of_a_node_apply_until_an_admin_changes_them(site: Site) -> None:
    site.machines.found[0] = replace(site.machines.found[0], data_class=2, splits_devices=True)
    drain_node(site.context, site.root, "n1", "new disk")
    node = get_node(site.context, "n1")
    assert (node.data_class, node.splits_devices) == (2, True)
    node, _ = update_node(site.context, site.root, "n1", NodeChange(data_class=0))
    assert (node.data_class, node.splits_devices) == (0, True)


def test_a_node_that_is_down_stays_down_and_keeps_its_settings(site: Site) -> None:
    site.machines.found[0] = replace(site.machines.found[0], state=NodeState.DOWN, reason="gone")
    update_node(site.context, site.root, "n1", NodeChange(data_class=1))
    node = drain_node(site.context, site.root, "n1", "new disk")
    assert (node.state, node.reason, node.data_class) == (NodeState.DOWN, "gone", 1)


def test_a_reported_label_can_be_changed_but_not_removed(site: Site) -> None:
    node, _ = update_node(site.context, site.root, "n1", NodeChange({"bought": "2020"}))
    assert node.labels == {"bought": "2020"}
    node, _ = update_node(site.context, site.root, "n1", NodeChange({"bought": None}))
    assert node.labels == {"bought": "2024"}
    with pytest.raises(Invalid, match="is reported by the node"):
        update_node(site.context, site.root, "n1", NodeChange({"bought": None}))


def test_removing_a_missing_label_succeeds(site: Site) -> None:
    node, _ = update_node(site.context, site.root, "n1", NodeChange({"old": None}))
    assert node.labels == {"bought": "2024"}


@pytest.mark.parametrize("label", ["", "A", "a b", "a=b", "ä", "a\n", "x" * 64, "a/b", "\u202e"])
def test_a_hostile_label_is_refused_with_its_field(site: Site, label: str) -> None:
    wishes = [{label: "x"}, {label: None}] + ([{"x": label}] if label else [])
    for labels in wishes:
        with pytest.raises(Invalid) as caught:
            update_node(site.context, site.root, "n1", NodeChange(labels))
        assert set(caught.value.fields) == {"labels"}
        assert caught.value.message.isprintable()


def test_a_node_may_have_32_labels_and_no_more(site: Site) -> None:
    many: dict[str, str | None] = {f"l{number}": "" for number in range(32)}
    update_node(site.context, site.root, "n1", NodeChange(many))
    with pytest.raises(Invalid, match="32"):
        update_node(site.context, site.root, "n1", NodeChange({"one-more": ""}))
    update_node(site.context, site.root, "n1", NodeChange({"one-more": "", "l0": None}))


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        (NodeChange(data_class=4), "data_class"),
        (NodeChange(data_class=-1), "data_class"),
        (NodeChange(min_data_class=4), "min_data_class"),
        (NodeChange(min_data_class=1), "min_data_class"),
        (NodeChange(data_class=1, min_data_class=2), "min_data_class"),
    ],
)
def test_data_classes_out_of_range_or_out_of_order_are_refused(site: Site, wish: NodeChange, field: str) -> None:
    with pytest.raises(Invalid) as caught:
        update_node(site.context, site.root, "n1", wish)
    assert set(caught.value.fields) == {field}


def test_only_admins_set_nodes_and_only_nodes_that_exist(site: Site) -> None:
    with pytest.raises(Forbidden):
        update_node(site.context, site.person("ann"), "n1", NodeChange(data_class=1))
    with pytest.raises(NotFound):
        update_node(site.context, site.root, "n9", NodeChange(data_class=1))
