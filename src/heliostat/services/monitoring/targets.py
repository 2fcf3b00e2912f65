"""Targets of Prometheus: the exporters that run on the nodes beside Heliostat."""

from typing import TypedDict

from heliostat.services.context import Context


class TargetGroup(TypedDict):
    """As Prometheus expects it from an HTTP service discovery."""

    targets: list[str]
    labels: dict[str, str]


def list_targets(context: Context) -> list[TargetGroup]:
    """node_exporter on every node, dcgm-exporter on nodes with GPUs, also while a node is down."""
    settings, groups = context.settings.monitoring, list[TargetGroup]()
    for node in context.node_inventory.nodes():
        ports = {"node-exporter": settings.node_exporter_port}
        if node.devices:
            ports["dcgm-exporter"] = settings.dcgm_exporter_port
        groups += [
            TargetGroup(targets=[f"{node.name}:{port}"], labels={"job": job, "node": node.name})
            for job, port in ports.items()
            if port
        ]
    return groups
