"""`helio nodes` and `helio node`: list, show, change, drain and recompose nodes."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.command_tree import command_group
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
    from heliostat.client.nodes import Device, GpuErrorEntry, GpuHistory, Node, NodeReservation

node = command_group("Show, change, drain or resume a node.")
NodeArgument = Annotated[str, typer.Argument(metavar="NAME")]
GpuArgument = Annotated[int, typer.Argument(metavar="GPU", min=0, max=9999)]

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
GPU_HISTORY_COLUMNS = (
    Column("GPU", right_aligned=True),
    Column("UUID"),
    Column("USED", right_aligned=True),
    Column("PEAK", right_aligned=True),
    Column("ERRORS", right_aligned=True),
    Column("NOTE", shrinkable=True),
)
GPU_ERROR_COLUMNS = (
    Column("GPU", right_aligned=True),
    Column("AT"),
    Column("JOB", right_aligned=True),
    Column("ERROR", shrinkable=True),
)
MAX_LISTED_ERRORS = 5  # of each GPU


def nodes(
    devices: Annotated[bool, typer.Option("--devices", "-d", help="Also list each GPU on its own line.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List nodes, their GPUs and their free resources."""
    all_nodes = connect().nodes.list()
    if as_json:
        print_json(all_nodes)
        return
    if not all_nodes:
        print("There are no nodes. Find the cause: helio doctor")
        return
    print_table(NODE_COLUMNS, (node_row(node_data) for node_data in all_nodes))
    if (devices or len(all_nodes) == 1) and any(node_data["devices"] for node_data in all_nodes):
        print()
        print_table(
            DEVICE_COLUMNS,
            (_device_row(node_data, device) for node_data in all_nodes for device in node_data["devices"]),
        )


@node.command()
def show(name: NodeArgument, as_json: JsonFlag = False) -> None:
    """Show a node: its settings, jobs, and the history of its GPUs."""
    client = connect()
    node_data = client.nodes.get(name)
    if as_json:
        print_json(node_data)
        return
    _print_node(node_data, as_json)
    _print_gpu_history(client.nodes.gpu_history(name))


@node.command("set")
def change_node(
    name: NodeArgument,
    label: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="Add a label: disk=ssd, or fast. May be repeated.")
    ] = None,
    no_label: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Remove a label. May be repeated.")
    ] = None,
    data_class: Annotated[
        int | None, typer.Option(metavar="0-3", help="Highest data class that the node may process.")
    ] = None,
    min_data_class: Annotated[
        int | None, typer.Option(metavar="0-3", help="Lowest data class that the node accepts.")
    ] = None,
    split_gpus: Annotated[
        bool | None, typer.Option("--split-gpus/--no-split-gpus", help="Allow several jobs to share one GPU.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Change the labels and data classes of a node, and whether its GPUs may be shared."""
    labels: dict[str, str | None] = dict.fromkeys(no_label or ())
    labels |= {node_data: value for node_data, _, value in (text.partition("=") for text in label or ())}
    changes: dict[str, Any] = {
        "labels": labels or None,
        "data_class": data_class,
        "min_data_class": min_data_class,
        "splits_devices": split_gpus,
    }
    if all(value is None for value in changes.values()):
        options = "--label, --no-label, --data-class, --min-data-class, --split-gpus or --no-split-gpus"
        raise typer.BadParameter(f"Nothing to change. Use {options}.")
    _print_node(connect().nodes.change(name, **changes), as_json)


@node.command()
def drain(
    name: NodeArgument,
    reason: Annotated[str, typer.Option(help="Reason that users see: new disk, kernel update…")],
    as_json: JsonFlag = False,
) -> None:
    """Start no new jobs on a node; its running jobs continue."""
    _print_state(connect().nodes.drain(name, reason), as_json)


@node.command()
def resume(name: NodeArgument, as_json: JsonFlag = False) -> None:
    """Start jobs on a drained node again."""
    _print_state(connect().nodes.resume(name), as_json)


@node.command("test-gpu")
def run_gpu_test(name: NodeArgument, gpu: GpuArgument, as_json: JsonFlag = False) -> None:
    """Test a GPU that failed. If it passes, jobs use it again."""
    test = connect().nodes.test_gpu(name, gpu)
    if as_json:
        print_json(test)
    else:
        for step in test["steps"]:
            result = {True: "passed", False: "FAILED", None: "skipped"}[step["passed"]]
            print(f"{result:8} {step['name']}" + (f": {step['detail']}" if step["detail"] else ""))
        print(f"GPU {gpu} of {name} " + ("is used by jobs again." if test["passed"] else "stays taken out."))
    if not test["passed"]:
        raise typer.Exit(1)


@node.command("resume-gpu")
def resume_gpu(
    name: NodeArgument,
    gpu: GpuArgument,
    reason: Annotated[str, typer.Option(help="Why a test is not needed. It is kept in the audit log.")],
    as_json: JsonFlag = False,
) -> None:
    """Use a GPU that failed again, without a test."""
    _print_node(connect().nodes.resume_gpu(name, gpu, reason), as_json)


@node.command()
def recompose(
    name: NodeArgument,
    gpus: Annotated[
        list[str] | None,
        typer.Option(metavar="TYPE=N", help="GPUs that the node will have in total: a100=4. May be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the steps.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Change the GPUs of a dynamic Slurm node. Without --gpus, show the progress."""
    gpu_counts = None if gpus is None else dict(_parse_gpu_count(text) for text in gpus)
    progress = connect().nodes.recompose(name, gpu_counts, dry_run=dry_run)
    if as_json:
        print_json(progress)
        return
    if progress["is_done"]:
        print(f"Node {name} already has these GPUs." if gpus else f"Node {name} is not being changed.")
        return
    for number, step in enumerate(progress["steps"]):
        mark = ">" if number == progress["at"] and not dry_run else " "
        print(f"{mark} {number + 1}. {step}")
    if progress["error"]:
        print_message(f"The last try failed and will be repeated: {progress['error']}")


def _parse_gpu_count(text: str) -> tuple[str, int]:
    gpu_type, _, count = text.rpartition("=")
    if not gpu_type or not count.isdecimal():
        raise typer.BadParameter(f"{text!r} is not TYPE=N. Write a100=4, or a100=0 to remove all of that type.")
    return gpu_type, int(count)


def node_row(node_data: "Node") -> list[Cell]:
    return [
        node_data["name"],
        StateCell(node_data["state"]),
        _gpus(node_data),
        f"{node_data['cpus_used']}/{node_data['cpus']}",
        f"{format_mib(node_data['memory_used_mib'])}/{format_mib(node_data['memory_mib'])}",
        "; ".join(
            filter(
                None,
                [
                    node_data["reason"],
                    *_restrictions(node_data),
                    *_settings(node_data),
                    *node_data["notes"],
                    *_gpu_problems(node_data),
                ],
            )
        ),
    ]


def _restrictions(node_data: "Node") -> list[str]:
    """What prevents other jobs from starting: an exclusive job, reservations now or soon."""
    job = node_data.get("exclusive_job")
    exclusive = [] if job is None else [f"exclusive to job {job}"]
    return exclusive + [_format_reservation(reservation) for reservation in node_data.get("reserved", [])]


def _format_reservation(reservation: "NodeReservation") -> str:
    """`2 GPUs for project course from Thu 09:00 until Thu 12:00`."""
    gpus, project, starts_at = reservation["gpus"], reservation["project"], reservation["starts_at"]
    amount = f"{format_count(gpus, 'GPU')} " if gpus else ""
    purpose = f"for project {project}" if project else "for maintenance" if amount else "maintenance"
    start = "" if is_past(starts_at) else f" from {format_time_short(starts_at)}"
    return f"{amount}{purpose}{start} until {format_time_short(reservation['ends_at'])}"


def _settings(node_data: "Node") -> list[str]:
    """Settings of the node that differ from their defaults."""
    lowest, highest = node_data.get("min_data_class", 0), node_data.get("data_class", 0)
    classes = f"only data of class {lowest}" + (f" to {highest}" if highest > lowest else "")
    return [
        " ".join(_labels(node_data)),
        classes if lowest else f"data up to class {highest}" if highest else "",
        "GPUs may be shared" if node_data.get("splits_devices") else "",
    ]


def _labels(node_data: "Node") -> list[str]:
    return [f"{name}={value}" if value else name for name, value in sorted(node_data.get("labels", {}).items())]


def _gpus(node_data: "Node") -> str:
    """`3/8 A100`: 3 of 8 are in use."""
    if not node_data["devices"]:
        return "-"
    types = Counter(device["type"] for device in node_data["devices"])
    names = ", ".join(name if len(types) == 1 else f"{count}x{name}" for name, count in types.items())
    return f"{node_data['gpus_used']}/{len(node_data['devices'])} {names}"


def _gpu_problems(node_data: "Node") -> list[str]:
    return [
        f"GPU {device['number']}: {device['problem'] or device['used_outside']}"
        for device in node_data["devices"]
        if device["problem"] or device["used_outside"]
    ]


def _device_row(node_data: "Node", device: "Device") -> list[Cell]:
    load, temperature = device["utilisation"], device["temperature"]
    return [
        node_data["name"],
        device["number"],
        device["type"],
        ",".join(map(str, device["job_ids"])) or "-",
        "-" if load is None else f"{load}%",
        f"{format_mib(device['memory_used_mib'])}/{format_mib(device['memory_mib'])}",
        "-" if temperature is None else f"{temperature}°C",
        "; ".join(filter(None, [_card_fraction(device), device["problem"], device["used_outside"]])),
    ]


def _card_fraction(device: "Device") -> str:
    """How much a MIG slice counts in GPU-hours, quotas and totals."""
    return f"counts as {device['card_fraction']:.2g} GPU" if device["card_fraction"] < 1 else ""


def _print_node(node_data: "Node", as_json: bool) -> None:
    if as_json:
        print_json(node_data)
        return
    name, state, gpus, cpus, memory, _ = node_row(node_data)
    print_fields(
        [
            ("node", name),
            ("state", state),
            ("reason", node_data["reason"]),
            ("GPUs in use", gpus),
            ("CPUs in use", cpus),
            ("memory in use", memory),
            ("labels", " ".join(_labels(node_data)) or "none"),
            ("data classes", f"{node_data['min_data_class']} to {node_data['data_class']}"),
            ("shared GPUs", "yes" if node_data["splits_devices"] else "no"),
            ("jobs", _jobs(node_data)),
            *(("reserved", _format_with_reason(reservation)) for reservation in node_data.get("reserved", [])),
            ("notes", "; ".join([*node_data["notes"], *_gpu_problems(node_data)]) or None),
        ]
    )
    if node_data.get("note"):
        print_message(node_data["note"] or "")


def _print_gpu_history(history: "list[GpuHistory]") -> None:
    if not history:
        return
    print()
    print_table(GPU_HISTORY_COLUMNS, (_gpu_history_row(card) for card in history))
    errors = [(card["number"], error) for card in history for error in card["errors"][:MAX_LISTED_ERRORS]]
    if errors:
        print()
        print_table(GPU_ERROR_COLUMNS, (_gpu_error_row(number, error) for number, error in errors))


def _gpu_history_row(card: "GpuHistory") -> list[Cell]:
    peak = card["peak_temperature"]
    return [
        card["number"],
        card["uuid"],
        f"{card['used_hours']:.1f}h",
        "-" if peak is None else f"{peak}°C",
        str(len(card["errors"])),
        f"taken out: {card['failure']}" if card["failure"] else "",
    ]


def _gpu_error_row(number: str, error: "GpuErrorEntry") -> list[Cell]:
    return [number, format_time_short(error["at"]), str(error["job_id"] or "-"), error["description"]]


def _jobs(node_data: "Node") -> str:
    exclusive = " (exclusive)" if node_data.get("exclusive_job") is not None else ""
    return (", ".join(map(str, node_data["jobs"])) or "none") + exclusive


def _format_with_reason(reservation: "NodeReservation") -> str:
    reason = f": {reservation['reason']}" if reservation["reason"] else ""
    return f"{_format_reservation(reservation)} ({reservation['name']}{reason})"


def _print_state(node_data: "Node", as_json: bool) -> None:
    if as_json:
        print_json(node_data)
        return
    reason = f": {node_data['reason']}" if node_data["reason"] else ""
    print(f"Node {node_data['name']} {format_cell(StateCell(node_data['state']))}{reason}")
