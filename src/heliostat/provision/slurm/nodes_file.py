"""Reads nodes.toml, strictly: what would harm Slurm's files never gets into them. Pure."""

import re
import tomllib
from collections import Counter
from collections.abc import ItemsView, Mapping
from typing import Any

from heliostat.errors import Invalid
from heliostat.models.quantities import parse_duration, parse_memory
from heliostat.provision.slurm import names
from heliostat.provision.slurm.description import Description, Gpus, Machine, Partition, Ports

_FILE = re.compile(r"/dev/[A-Za-z0-9_./-]+")
_SETTING = re.compile(r"[A-Z][A-Za-z0-9]{1,60}")
_VALUE = re.compile(r"[^\x00-\x1f\x7f#\\]{1,1000}")
# They follow from the rest of nodes.toml, or would bring in what nobody has looked at.
_NOT_SET_HERE = """ClusterName ControlMachine ControlAddr SlurmctldHost SlurmctldPort SlurmctldAddr SlurmUser
SlurmdUser AuthType AccountingStorageHost AccountingStoragePort AccountingStorageType NodeName NodeSet
PartitionName DownNodes FrontendName SwitchName Include GresTypes""".lower().split()
_MISSING = object()


class Table:
    """One table of the file; a value that is not as it should be is refused with its place."""

    def __init__(self, values: dict[str, Any], what: str) -> None:
        self._values, self.what = values, what

    def called(self, what: str) -> "Table":
        return Table(self._values, what)

    def only(self, *keys: str) -> None:
        if unknown := sorted(set(self._values) - set(keys)):
            raise Invalid(f"{self.what}: unknown: {', '.join(unknown)}.", f"Known are: {', '.join(keys)}.")

    def items(self) -> ItemsView[str, Any]:
        return self._values.items()

    def value(self, key: str, default: Any = _MISSING) -> Any:
        found = self._values.get(key, default)
        if found is _MISSING:
            raise Invalid(f"{self.what}: {key} is missing.", f"Write {key} = …; docs/admins.md has an example.")
        return found

    def text(self, key: str, default: Any = _MISSING) -> str:
        return str(self._as(str, key, default, "a text in quotes"))

    def texts(self, key: str) -> list[str]:
        found = self._as(list, key, [], "a list of texts")
        if not all(isinstance(one, str) for one in found):
            raise Invalid(f"{self.what}: {key} is not a list of texts.", f'Write {key} = ["…"].')
        return list(found)

    def flag(self, key: str) -> bool:
        return bool(self._as(bool, key, False, "true or false"))

    def number(self, key: str, default: Any = _MISSING, most: int = 1_000_000) -> int:
        found = self._as(int, key, default, "a whole number")
        if isinstance(found, bool) or not 1 <= found <= most:
            raise Invalid(f"{self.what}: {key} is {found}.", f"It must be a whole number from 1 to {most}.")
        return int(found)

    def table(self, key: str) -> "Table":
        return Table(self._as(dict, key, {}, "a table"), f"{self.what}: {key}")

    def tables(self, key: str) -> list["Table"]:
        found = self._as(list, key, [], f"written as [[{key}]]")
        if not all(isinstance(one, dict) for one in found):
            raise Invalid(f"{self.what}: {key} is not a list of tables.", f"Write [[{key}]] before each.")
        return [Table(one, key) for one in found]

    def _as(self, kind: type, key: str, default: Any, words: str) -> Any:
        found = self.value(key, default)
        if not isinstance(found, kind):
            raise Invalid(f"{self.what}: {key} is {found!r}.", f"It must be {words}.")
        return found


def read_description(text: str) -> Description:
    """Of the text of nodes.toml. Raises Invalid, with what to write instead."""
    try:
        top = Table(tomllib.loads(text), "top level")
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"it cannot be read: {error}", "Fix that line; the format is TOML.") from error
    top.only("cluster", "controller", "controller_address", "nodes", "partitions", "ports", "settings")
    machines = tuple(machine for table in top.tables("nodes") for machine in _machines(table))
    if not machines:
        raise Invalid("there are no nodes.", "`helio slurm setup node` prints what to write for a machine.")
    _once("nodes", [machine.name for machine in machines])
    found_address = top.text("controller_address", "")
    return Description(
        cluster=names.cluster(top.text("cluster", "cluster")),
        controller=names.host(top.text("controller"), "controller"),
        machines=machines,
        partitions=_partitions(top, {machine.name for machine in machines}),
        controller_address=names.address(found_address, "controller_address") if found_address else "",
        ports=_ports(top.table("ports")),
        settings=_settings(top.value("settings", {})),
    )


def _machines(table: Table) -> list[Machine]:
    table.only("name", "cpus", "sockets", "cores_per_socket", "threads_per_core", "memory", "gpus", "features",
               "host", "address", "port")  # fmt: skip
    found = [names.host(name, "nodes: name") for name in names.expand(table.text("name"))]
    table = table.called(f"nodes: {table.text('name')}")
    if len(found) > 1 and any(table.value(key, None) is not None for key in ("host", "address", "port")):
        raise Invalid(f"{table.what}: host, address and port are of one machine.", "Write a [[nodes]] for each.")
    return [_machine(table, name) for name in found]


def _machine(table: Table, name: str) -> Machine:
    cpus, sockets = table.number("cpus"), table.number("sockets", 1)
    threads = table.number("threads_per_core", 1)
    cores = table.number("cores_per_socket", max(1, cpus // (sockets * threads)))
    if sockets * cores * threads != cpus:
        message = f"{table.what}: {sockets} sockets of {cores} cores of {threads} threads are not {cpus} cpus."
        raise Invalid(message, "Take the numbers that `slurmd -C` prints there.")
    host, address, port = table.text("host", ""), table.text("address", ""), table.value("port", None)
    return Machine(
        name,
        cpus,
        sockets,
        cores,
        threads,
        _memory(table),
        gpus=_gpus(table),
        features=tuple(names.feature(one, table.what) for one in table.texts("features")),
        host=names.host(host, table.what) if host else "",
        address=names.address(address, table.what) if address else "",
        port=None if port is None else table.number("port", most=65535),
    )


def _memory(table: Table) -> int:
    text = table.text("memory")
    try:
        found = parse_memory(text)
    except ValueError:
        found = 0
    if found < 1:
        raise Invalid(f"{table.what}: memory is {text!r}.", 'Write how much jobs may use of it: memory = "500G".')
    return found


def _gpus(table: Table) -> tuple[Gpus, ...]:
    """A number takes the next of /dev/nvidia0, /dev/nvidia1, …; a text names the files."""
    found, at = [], 0
    for key, value in table.table("gpus").items():
        kind = names.gpu_type(key, table.what)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 64:
            files = tuple(f"/dev/nvidia{number}" for number in range(at, at + value))
            at += value
        elif isinstance(value, str) and all(map(_is_device, names.expand(value))):
            files = names.expand(value)
        else:
            hint = 'Write how many, gpus = { a100 = 4 }, or which, gpus = { a100 = "/dev/nvidia[0-3]" }.'
            raise Invalid(f"{table.what}: gpus of type {kind} are {value!r}.", hint)
        found.append(Gpus(kind, files))
    _once(f"{table.what}: gpus", [file for gpus in found for file in gpus.files])
    return tuple(found)


def _is_device(path: str) -> bool:
    return _FILE.fullmatch(path) is not None and ".." not in path


def _partitions(top: Table, known: set[str]) -> tuple[Partition, ...]:
    tables = top.tables("partitions")
    if not tables:
        return (Partition("main", is_default=True),)
    _once("partitions", [table.text("name") for table in tables])
    marked = [table.text("name") for table in tables if table.flag("default")]
    if len(marked) > 1:
        raise Invalid(f"Several partitions are the default: {', '.join(marked)}.", "Let one be.")
    default = marked[0] if marked else tables[0].text("name")
    return tuple(_partition(table, known, default) for table in tables)


def _partition(table: Table, known: set[str], default: str) -> Partition:
    table.only("name", "nodes", "default", "max_time")
    name = names.partition(table.text("name"))
    nodes = tuple(node for text in table.texts("nodes") for node in names.expand(text))
    if unknown := sorted(set(nodes) - known):
        raise Invalid(f"partitions: {name} names {', '.join(unknown)}.", f"Nodes are: {', '.join(sorted(known))}.")
    limit = table.text("max_time", "")
    try:
        minutes = max(1, parse_duration(limit) // 60) if limit else None
    except ValueError as error:
        raise Invalid(f"partitions: {name}: max_time is {limit!r}.", 'Write max_time = "7d".') from error
    return Partition(name, nodes, name == default, minutes)


def _ports(table: Table) -> Ports:
    table.only("controller", "accounting", "database")
    plain = Ports()
    return Ports(
        table.number("controller", plain.controller, most=65535),
        table.number("accounting", plain.accounting, most=65535),
        table.number("database", plain.database, most=65535),
    )


def _settings(found: Any) -> dict[str, str]:
    if not isinstance(found, Mapping):
        raise Invalid("settings is no table.", "Write [settings], and below it DefMemPerCPU = 2000.")
    for key, value in found.items():
        if not _SETTING.fullmatch(key) or key.lower() in _NOT_SET_HERE:
            hint = "These are names of slurm.conf(5); what follows from the rest of nodes.toml is not set here."
            raise Invalid(f"settings: {key!r} cannot be set.", hint)
        if isinstance(value, bool) or not isinstance(value, int | str) or not _VALUE.fullmatch(str(value)):
            raise Invalid(f"settings: the value of {key} cannot be written.", "One line, without # and backslash.")
    return {key: str(value) for key, value in found.items()}


def _once(what: str, found: list[str]) -> None:
    if twice := sorted(one for one, count in Counter(found).items() if count > 1):
        raise Invalid(f"{what}: {', '.join(twice)} more than once.", "Name each once.")
