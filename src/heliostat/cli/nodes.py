"""Commands about machines."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.app import noun
from heliostat.cli.connect import connect
from heliostat.cli.output import Cell, Column, JsonFlag, State, print_json, print_table, styled
from heliostat.cli.units import size

if TYPE_CHECKING:
    from heliostat.client.shapes import Device, Node

node = noun("Drain a machine, or use it again.")
NodeName = Annotated[str, typer.Argument(metavar="NAME")]

NODE_COLUMNS = (
    Column("NODE"),
    Column("STATE"),
    Column("GPUS"),
    Column("CPUS", right=True),
    Column("MEMORY", right=True),
    Column("NOTE", shrinks=True),
)
DEVICE_COLUMNS = (
    Column("NODE"),
    Column("GPU", right=True),
    Column("TYPE"),
    Column("JOB", right=True),
    Column("LOAD", right=True),
    Column("MEMORY", right=True),
    Column("TEMP", right=True),
    Column("NOTE", shrinks=True),
)


def nodes(
    devices: Annotated[bool, typer.Option("--devices", "-d", help="Each GPU on its own line.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List machines, their GPUs and what is free."""
    found = connect().nodes()
    if as_json:
        print_json(found)
        return
    if not found:
        print("There is no machine. Look with helio doctor.")
        return
    print_table(NODE_COLUMNS, (node_row(one) for one in found))
    if (devices or len(found) == 1) and any(one["devices"] for one in found):
        print()
        print_table(DEVICE_COLUMNS, (_device_row(one, device) for one in found for device in one["devices"]))


@node.command()
def drain(
    name: NodeName,
    reason: Annotated[str, typer.Option(help="What people will read: new disk, kernel update…")],
    as_json: JsonFlag = False,
) -> None:
    """Start nothing new on a machine; what runs there goes on."""
    _changed(connect().drain(name, reason), as_json)


@node.command()
def resume(name: NodeName, as_json: JsonFlag = False) -> None:
    """Use a drained machine again."""
    _changed(connect().resume(name), as_json)


def node_row(one: "Node") -> list[Cell]:
    return [
        one["name"],
        State(one["state"]),
        _gpus(one),
        f"{one['cpus_used']}/{one['cpus']}",
        f"{size(one['memory_used_mib'])}/{size(one['memory_mib'])}",
        "; ".join(filter(None, [one["reason"], *one["notes"], *_troubles(one)])),
    ]


def _gpus(one: "Node") -> str:
    """`3/8 A100`: used of all."""
    if not one["devices"]:
        return "-"
    types = Counter(device["type"] for device in one["devices"])
    named = ", ".join(kind if len(types) == 1 else f"{count}x{kind}" for kind, count in types.items())
    return f"{one['gpus_used']}/{len(one['devices'])} {named}"


def _troubles(one: "Node") -> list[str]:
    return [
        f"GPU {device['index']}: {device['problem'] or device['used_outside']}"
        for device in one["devices"]
        if device["problem"] or device["used_outside"]
    ]


def _device_row(one: "Node", device: "Device") -> list[Cell]:
    load, temperature = device["utilisation"], device["temperature"]
    return [
        one["name"],
        str(device["index"]),
        device["type"],
        ",".join(map(str, device["job_ids"])) or "-",
        "-" if load is None else f"{load}%",
        f"{size(device['memory_used_mib'])}/{size(device['memory_mib'])}",
        "-" if temperature is None else f"{temperature}°C",
        device["problem"] or device["used_outside"] or "",
    ]


def _changed(one: "Node", as_json: bool) -> None:
    if as_json:
        print_json(one)
        return
    why = f": {one['reason']}" if one["reason"] else ""
    print(f"Node {one['name']} {styled(State(one['state']))}{why}")
