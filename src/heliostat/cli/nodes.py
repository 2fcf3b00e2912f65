"""Commands about machines."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.app import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import (
    Cell,
    Column,
    JsonFlag,
    StateCell,
    format_cell,
    format_count,
    print_fields,
    print_json,
    print_message,
    print_table,
)
from heliostat.cli.value_format import format_mib, format_time_short, is_past

if TYPE_CHECKING:
    from heliostat.client.nodes import Device, Node, NodeReservation

node = command_group("Show, set or drain a machine, or use it again.")
NodeArgument = Annotated[str, typer.Argument(metavar="NAME")]

NODE_COLUMNS = (
    Column("NODE"),
    Column("STATE"),
    Column("GPUS"),
    Column("CPUS", right_aligned=True),
    Column("MEMORY", right_aligned=True),
    Column("NOTE", shrinkable=True),
)
DEVICE_COLUMNS = (
    Column("NODE"),
    Column("GPU", right_aligned=True),
    Column("TYPE"),
    Column("JOB", right_aligned=True),
    Column("LOAD", right_aligned=True),
    Column("MEMORY", right_aligned=True),
    Column("TEMP", right_aligned=True),
    Column("NOTE", shrinkable=True),
)


def nodes(
    devices: Annotated[bool, typer.Option("--devices", "-d", help="Each GPU on its own line.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List machines, their GPUs and what is free."""
    found = connect().nodes.list()
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
def show(name: NodeArgument, as_json: JsonFlag = False) -> None:
    """Show one machine: its settings, its GPUs, what runs there."""
    _print_node(connect().nodes.get(name), as_json)


@node.command("set")
def change_node(
    name: NodeArgument,
    label: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="disk=ssd, or fast. May repeat.")
    ] = None,
    no_label: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Take one away. May repeat.")] = None,
    data_class: Annotated[
        int | None, typer.Option(metavar="0-3", help="Cleared for data up to this class.")
    ] = None,
    min_data_class: Annotated[
        int | None, typer.Option(metavar="0-3", help="Kept for data of at least this class.")
    ] = None,
    split_gpus: Annotated[
        bool | None, typer.Option("--split-gpus/--no-split-gpus", help="May several jobs share one of its GPUs?")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Set the labels and data classes of a machine, and whether its GPUs may be shared."""
    labels: dict[str, str | None] = dict.fromkeys(no_label or ())
    labels |= {one: value for one, _, value in (text.partition("=") for text in label or ())}
    changes: dict[str, Any] = {
        "labels": labels or None,
        "data_class": data_class,
        "min_data_class": min_data_class,
        "splits_devices": split_gpus,
    }
    if all(value is None for value in changes.values()):
        options = "--label, --no-label, --data-class, --min-data-class, --split-gpus or --no-split-gpus"
        raise typer.BadParameter(f"Say what to change: {options}.")
    _print_node(connect().nodes.change(name, **changes), as_json)


@node.command()
def drain(
    name: NodeArgument,
    reason: Annotated[str, typer.Option(help="What people will read: new disk, kernel update…")],
    as_json: JsonFlag = False,
) -> None:
    """Start nothing new on a machine; what runs there goes on."""
    _changed(connect().nodes.drain(name, reason), as_json)


@node.command()
def resume(name: NodeArgument, as_json: JsonFlag = False) -> None:
    """Use a drained machine again."""
    _changed(connect().nodes.resume(name), as_json)


@node.command()
def recompose(
    name: NodeArgument,
    gpus: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=N", help="All it will have: a100=4. May repeat.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Give a dynamic node of Slurm other GPUs; without --gpus, say how far that is."""
    wish = None if gpus is None else dict(_wished(text) for text in gpus)
    told = connect().nodes.recompose(name, wish, dry_run=dry_run)
    if as_json:
        print_json(told)
        return
    if told["is_done"]:
        print(f"Node {name} has these GPUs already." if gpus else f"Nothing is being changed on {name}.")
        return
    for number, step in enumerate(told["steps"]):
        mark = ">" if number == told["at"] and not dry_run else " "
        print(f"{mark} {number + 1}. {step}")
    if told["error"]:
        print_message(f"It is tried again: {told['error']}")


def _wished(text: str) -> tuple[str, int]:
    kind, _, count = text.rpartition("=")
    if not kind or not count.isdecimal():
        raise typer.BadParameter(f"{text!r} is not a type and a number: a100=4; a100=0 takes all away.")
    return kind, int(count)


def node_row(one: "Node") -> list[Cell]:
    return [
        one["name"],
        StateCell(one["state"]),
        _gpus(one),
        f"{one['cpus_used']}/{one['cpus']}",
        f"{format_mib(one['memory_used_mib'])}/{format_mib(one['memory_mib'])}",
        "; ".join(filter(None, [one["reason"], *_taken(one), *_settings(one), *one["notes"], *_troubles(one)])),
    ]


def _taken(one: "Node") -> list[str]:
    """Who keeps others away: a job that is alone there, a reservation now or soon."""
    alone = one.get("exclusive_job")
    return [f"job {alone} is alone here"] * (alone is not None) + [
        _set_aside(kept) for kept in one.get("reserved", [])
    ]


def _set_aside(kept: "NodeReservation") -> str:
    """`2 GPUs for project course from Thu 09:00 until Thu 12:00`."""
    what = f"{format_count(kept['gpus'], 'GPU')} " if kept["gpus"] else ""
    purpose = f"for project {kept['project']}" if kept["project"] else "for maintenance" if what else "maintenance"
    begins = "" if is_past(kept["starts_at"]) else f" from {format_time_short(kept['starts_at'])}"
    return f"{what}{purpose}{begins} until {format_time_short(kept['ends_at'])}"


def _settings(one: "Node") -> list[str]:
    """What an admin has set, but for what is as usual."""
    least, most = one.get("min_data_class", 0), one.get("data_class", 0)
    classes = f"only data of class {least}" + (f" to {most}" if most > least else "")
    return [
        " ".join(_labels(one)),
        classes if least else f"data up to class {most}" if most else "",
        "GPUs may be shared" if one.get("splits_devices") else "",
    ]


def _labels(one: "Node") -> list[str]:
    return [f"{name}={value}" if value else name for name, value in sorted(one.get("labels", {}).items())]


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
        f"{format_mib(device['memory_used_mib'])}/{format_mib(device['memory_mib'])}",
        "-" if temperature is None else f"{temperature}°C",
        device["problem"] or device["used_outside"] or "",
    ]


def _print_node(one: "Node", as_json: bool) -> None:
    if as_json:
        print_json(one)
        return
    name, state, gpus, cpus, memory, _ = node_row(one)
    print_fields(
        [
            ("node", name),
            ("state", state),
            ("reason", one["reason"]),
            ("GPUs in use", gpus),
            ("cpus in use", cpus),
            ("memory in use", memory),
            ("labels", " ".join(_labels(one)) or "none"),
            ("data classes", f"{one['min_data_class']} to {one['data_class']}"),
            ("shares GPUs", "yes" if one["splits_devices"] else "no"),
            ("jobs", _jobs(one)),
            *(("set aside", _with_reason(kept)) for kept in one.get("reserved", [])),
            ("notes", "; ".join([*one["notes"], *_troubles(one)]) or None),
        ]
    )
    if one.get("note"):
        print_message(one["note"] or "")


def _jobs(one: "Node") -> str:
    alone = ", which nobody may join" if one.get("exclusive_job") is not None else ""
    return (", ".join(map(str, one["jobs"])) or "none") + alone


def _with_reason(kept: "NodeReservation") -> str:
    why = f": {kept['reason']}" if kept["reason"] else ""
    return f"{_set_aside(kept)} ({kept['name']}{why})"


def _changed(one: "Node", as_json: bool) -> None:
    if as_json:
        print_json(one)
        return
    why = f": {one['reason']}" if one["reason"] else ""
    print(f"Node {one['name']} {format_cell(StateCell(one['state']))}{why}")
