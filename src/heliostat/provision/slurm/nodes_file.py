"""Parser of nodes.toml, the description of a Slurm cluster. Strict: only safe values reach Slurm's files. Pure."""

import re
import tomllib
from collections import Counter
from collections.abc import ItemsView, Mapping
from typing import Any

from heliostat.errors import Invalid
from heliostat.models.quantities import parse_duration, parse_memory
from heliostat.provision.slurm import name_validation
from heliostat.provision.slurm.cluster_spec import ClusterSpec, GpuSpec, NodeSpec, PartitionSpec, Ports

_FILE = re.compile(r"/dev/[A-Za-z0-9_./-]+")
_SETTING = re.compile(r"[A-Z][A-Za-z0-9]{1,60}")
_VALUE = re.compile(r"[^\x00-\x1f\x7f#\\]{1,1000}")
# These follow from the rest of nodes.toml, or would include unchecked content.
_NOT_SET_HERE = """ClusterName ControlMachine ControlAddr SlurmctldHost SlurmctldPort SlurmctldAddr SlurmUser
SlurmdUser AuthType AccountingStorageHost AccountingStoragePort AccountingStorageType NodeName NodeSet
PartitionName DownNodes FrontendName SwitchName Include GresTypes""".lower().split()
_MISSING = object()


class TomlTable:
    """A table of the file. Its methods raise Invalid, with the label of the table, for a wrong value."""

    def __init__(self, values: dict[str, Any], label: str) -> None:
        self._values, self.label = values, label

    def with_label(self, label: str) -> "TomlTable":
        return TomlTable(self._values, label)

    def check_keys(self, *keys: str) -> None:
        if unknown := sorted(set(self._values) - set(keys)):
            hint = f"Possible keys: {', '.join(keys)}."
            raise Invalid(f"{self.label}: unknown key: {', '.join(unknown)}.", hint)

    def items(self) -> ItemsView[str, Any]:
        return self._values.items()

    def value(self, key: str, default: Any = _MISSING) -> Any:
        value = self._values.get(key, default)
        if value is _MISSING:
            raise Invalid(f"{self.label}: {key} is missing.", f"Add {key} = …; docs/admins.md has an example.")
        return value

    def text(self, key: str, default: Any = _MISSING) -> str:
        return str(self._as(str, key, default, "a text in quotes"))

    def text_list(self, key: str) -> list[str]:
        value = self._as(list, key, [], "a list of texts")
        if not all(isinstance(item, str) for item in value):
            raise Invalid(f"{self.label}: {key} is not a list of texts.", f'Write {key} = ["…"].')
        return list(value)

    def flag(self, key: str) -> bool:
        return bool(self._as(bool, key, False, "true or false"))

    def number(self, key: str, default: Any = _MISSING, most: int = 1_000_000) -> int:
        value = self._as(int, key, default, "a whole number")
        if isinstance(value, bool) or not 1 <= value <= most:
            raise Invalid(f"{self.label}: {key} is {value}.", f"It must be a whole number from 1 to {most}.")
        return int(value)

    def table(self, key: str) -> "TomlTable":
        return TomlTable(self._as(dict, key, {}, "a table"), f"{self.label}: {key}")

    def tables(self, key: str) -> list["TomlTable"]:
        value = self._as(list, key, [], f"written as [[{key}]]")
        if not all(isinstance(item, dict) for item in value):
            raise Invalid(f"{self.label}: {key} is not a list of tables.", f"Write [[{key}]] before each.")
        return [TomlTable(item, key) for item in value]

    def _as(self, kind: type, key: str, default: Any, description: str) -> Any:
        value = self.value(key, default)
        if not isinstance(value, kind):
            raise Invalid(f"{self.label}: {key} is {value!r}.", f"It must be {description}.")
        return value


def parse_nodes_file(text: str) -> ClusterSpec:
    """Raises Invalid, with what to write instead."""
    try:
        top = TomlTable(tomllib.loads(text), "top level")
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"not valid TOML: {error}", "Fix that line; the format is TOML.") from error
    top.check_keys("cluster", "controller", "controller_address", "nodes", "partitions", "ports", "settings")
    nodes = tuple(node for table in top.tables("nodes") for node in _nodes(table))
    if not nodes:
        raise Invalid("there are no nodes.", "`helio slurm setup node` prints the section of a node.")
    _require_unique("nodes", [node.name for node in nodes])
    address = top.text("controller_address", "")
    return ClusterSpec(
        cluster=name_validation.require_cluster_name(top.text("cluster", "cluster")),
        controller=name_validation.require_host_name(top.text("controller"), "controller"),
        nodes=nodes,
        partitions=_partitions(top, {node.name for node in nodes}),
        controller_address=name_validation.require_address(address, "controller_address") if address else "",
        ports=_ports(top.table("ports")),
        settings=_settings(top.value("settings", {})),
    )


def _nodes(table: TomlTable) -> list[NodeSpec]:
    table.check_keys("name", "cpus", "sockets", "cores_per_socket", "threads_per_core", "memory", "gpus",
               "features", "host", "address", "port")  # fmt: skip
    names = [
        name_validation.require_host_name(name, "nodes: name")
        for name in name_validation.expand_ranges(table.text("name"))
    ]
    table = table.with_label(f"nodes: {table.text('name')}")
    if len(names) > 1 and any(table.value(key, None) is not None for key in ("host", "address", "port")):
        message = f"{table.label}: host, address and port cannot be the same for several nodes."
        raise Invalid(message, "Write a [[nodes]] for each node.")
    return [_node(table, name) for name in names]


def _node(table: TomlTable, name: str) -> NodeSpec:
    cpus, sockets = table.number("cpus"), table.number("sockets", 1)
    threads = table.number("threads_per_core", 1)
    cores = table.number("cores_per_socket", max(1, cpus // (sockets * threads)))
    if sockets * cores * threads != cpus:
        message = f"{table.label}: {sockets} sockets of {cores} cores of {threads} threads are not {cpus} cpus."
        raise Invalid(message, "Use the numbers that `slurmd -C` prints on the node.")
    host, address, port = table.text("host", ""), table.text("address", ""), table.value("port", None)
    return NodeSpec(
        name,
        cpus,
        sockets,
        cores,
        threads,
        _memory(table),
        gpus=_gpus(table),
        features=tuple(name_validation.require_feature(name, table.label) for name in table.text_list("features")),
        configured_hostname=name_validation.require_host_name(host, table.label) if host else "",
        address=name_validation.require_address(address, table.label) if address else "",
        port=None if port is None else table.number("port", most=65535),
    )


def _memory(table: TomlTable) -> int:
    text = table.text("memory")
    try:
        mib = parse_memory(text)
    except ValueError:
        mib = 0
    if mib < 1:
        raise Invalid(f"{table.label}: memory is {text!r}.", 'Write the memory for jobs: memory = "500G".')
    return mib


def _gpus(table: TomlTable) -> tuple[GpuSpec, ...]:
    """A number stands for the next of /dev/nvidia0, /dev/nvidia1, …; a text names the device files."""
    specs, next_index = [], 0
    for key, value in table.table("gpus").items():
        kind = name_validation.require_gpu_type(key, table.label)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 64:
            files = tuple(f"/dev/nvidia{index}" for index in range(next_index, next_index + value))
            next_index += value
        elif isinstance(value, str) and all(map(_is_device, name_validation.expand_ranges(value))):
            files = name_validation.expand_ranges(value)
        else:
            hint = 'Write a number, gpus = { a100 = 4 }, or device files, gpus = { a100 = "/dev/nvidia[0-3]" }.'
            raise Invalid(f"{table.label}: gpus of type {kind} is {value!r}.", hint)
        specs.append(GpuSpec(kind, files))
    _require_unique(f"{table.label}: gpus", [file for gpus in specs for file in gpus.device_files])
    return tuple(specs)


def _is_device(path: str) -> bool:
    return _FILE.fullmatch(path) is not None and ".." not in path


def _partitions(top: TomlTable, known: set[str]) -> tuple[PartitionSpec, ...]:
    tables = top.tables("partitions")
    if not tables:
        return (PartitionSpec("main", is_default=True),)
    _require_unique("partitions", [table.text("name") for table in tables])
    marked = [table.text("name") for table in tables if table.flag("default")]
    if len(marked) > 1:
        raise Invalid(f"Several partitions are the default: {', '.join(marked)}.", "Set default = true for one.")
    default = marked[0] if marked else tables[0].text("name")
    return tuple(_partition(table, known, default) for table in tables)


def _partition(table: TomlTable, known: set[str], default: str) -> PartitionSpec:
    table.check_keys("name", "nodes", "default", "max_time")
    name = name_validation.require_partition_name(table.text("name"))
    nodes = tuple(node for text in table.text_list("nodes") for node in name_validation.expand_ranges(text))
    if unknown := sorted(set(nodes) - known):
        hint = f"Nodes are: {', '.join(sorted(known))}."
        raise Invalid(f"partitions: {name} has unknown nodes: {', '.join(unknown)}.", hint)
    limit = table.text("max_time", "")
    try:
        minutes = max(1, parse_duration(limit) // 60) if limit else None
    except ValueError as error:
        raise Invalid(f"partitions: {name}: max_time is {limit!r}.", 'Write max_time = "7d".') from error
    return PartitionSpec(name, nodes, name == default, minutes)


def _ports(table: TomlTable) -> Ports:
    table.check_keys("controller", "accounting", "database")
    default = Ports()
    return Ports(
        table.number("controller", default.controller, most=65535),
        table.number("accounting", default.accounting, most=65535),
        table.number("database", default.database, most=65535),
    )


def _settings(table: Any) -> dict[str, str]:
    if not isinstance(table, Mapping):
        raise Invalid("settings is not a table.", "Write [settings], and below it DefMemPerCPU = 2000.")
    for key, value in table.items():
        if not _SETTING.fullmatch(key) or key.lower() in _NOT_SET_HERE:
            hint = (
                "Use names from slurm.conf(5). Values that follow from the rest of nodes.toml cannot be set here."
            )
            raise Invalid(f"settings: {key!r} cannot be set.", hint)
        if isinstance(value, bool) or not isinstance(value, int | str) or not _VALUE.fullmatch(str(value)):
            raise Invalid(f"settings: the value of {key} is not valid.", "One line, without # and backslash.")
    return {key: str(value) for key, value in table.items()}


def _require_unique(label: str, names: list[str]) -> None:
    if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
        raise Invalid(f"{label}: {', '.join(repeated)} appears more than once.", "Name each once.")
