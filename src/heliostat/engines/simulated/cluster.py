"""Simulated nodes: parsing of node descriptions, the demo cluster, and device metrics under load."""

import math
import re
import uuid
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from heliostat.engines.simulated.behaviour import usage_profile_of
from heliostat.errors import Invalid
from heliostat.models import Attempt, Device, DeviceProcess, Node

MAX_NODES = 10_000
WARM_UP_SECONDS = 90.0
IDLE_WATTS, WATTS_PER_PERCENT = 50.0, 3.0  # of a GPU
IDLE_MEMORY_MIB = 4

_GROUP = re.compile(r"(?P<count>\d{1,5})x(?:(?P<gpus>\d{1,2})x(?P<type>[a-z0-9-]+)|cpu)", re.IGNORECASE)
_NAMESPACE = uuid.UUID("6d1f3f0a-2f0c-4c58-9f0e-6a0b8f3a7c11")


@dataclass(frozen=True, slots=True)
class DeviceModel:
    type: str
    name: str
    memory_mib: int
    cpus_per_gpu: int  # of its node
    host_mib_per_gpu: int


DEVICE_MODELS = {
    model.type: model
    for model in (
        DeviceModel("H100", "NVIDIA H100 80GB HBM3", 81559, 12, 256 * 1024),
        DeviceModel("A100", "NVIDIA A100-SXM4-80GB", 81920, 8, 128 * 1024),
        DeviceModel("A40", "NVIDIA A40", 46068, 8, 64 * 1024),
        DeviceModel("A10", "NVIDIA A10", 23028, 8, 64 * 1024),
        DeviceModel("V100", "Tesla V100-SXM2-32GB", 32768, 8, 96 * 1024),
        DeviceModel("RTX-4090", "NVIDIA GeForce RTX 4090", 24564, 8, 64 * 1024),
        DeviceModel("RTX-3090", "NVIDIA GeForce RTX 3090", 24576, 4, 64 * 1024),
        DeviceModel("T4", "Tesla T4", 15360, 6, 48 * 1024),
    )
}


def parse_nodes(text: str) -> list[Node]:
    """`8x8xA100, 2x4xT4, 3xcpu`: nodes x GPUs x type; `cpu` for nodes without GPUs."""
    numbers: Counter[str] = Counter()
    nodes: list[Node] = []
    for part in (part.strip() for part in text.split(",")):
        group = _read_group(part)
        if len(nodes) + group.count > MAX_NODES:
            raise Invalid(f"Too many nodes: the limit is {MAX_NODES:,}.", "Use fewer nodes.")
        nodes += group.nodes(numbers)
    return nodes


def demo_nodes() -> list[Node]:
    """The cluster of an imaging lab in a hospital: 40 nodes, 100 GPUs, 788 CPUs."""
    numbers: Counter[str] = Counter()
    return [node for group in _DEMO_GROUPS for node in group.nodes(numbers)]


def device_under_load(device: Device, attempt: Attempt, seconds: float) -> Device:
    """Metrics of this device after the attempt has run for so many seconds. Deterministic."""
    seed = zlib.crc32(f"{attempt.id}/{device.uuid}".encode())
    warm_up = min(1.0, max(0.0, seconds) / WARM_UP_SECONDS)
    profile = usage_profile_of(attempt.job.id)
    is_used = not (profile.uses_one_gpu and device.uuid in attempt.devices[1:])
    utilisation = _utilisation(profile.gpu_percent if is_used else 0, seed, seconds, warm_up)
    fill = 0.25 + 0.7 * ((seed >> 8) % 100) / 100 if is_used else 0.01
    memory_mib = IDLE_MEMORY_MIB + int(device.memory_mib * fill * (0.3 + 0.7 * warm_up))
    return Device(
        uuid=device.uuid,
        index=device.index,
        type=device.type,
        name=device.name,
        memory_mib=device.memory_mib,
        memory_used_mib=memory_mib,
        utilisation=utilisation,
        temperature=_resting_temperature(device.uuid) + int(utilisation * 0.42 * (0.5 + 0.5 * warm_up)),
        power_watts=IDLE_WATTS + WATTS_PER_PERCENT * utilisation,
        processes=(_process(attempt, memory_mib),),
    )


@dataclass(frozen=True, slots=True)
class _Group:
    """Nodes of one kind."""

    prefix: str
    count: int
    gpus: int
    model: DeviceModel | None
    cpus: int
    memory_mib: int
    labels: Mapping[str, str] = field(default_factory=dict)

    def nodes(self, numbers: Counter[str]) -> list[Node]:
        first = numbers[self.prefix] + 1
        numbers[self.prefix] += self.count
        return [self._node(f"{self.prefix}-{first + offset:02d}") for offset in range(self.count)]

    def _node(self, name: str) -> Node:
        model = self.model
        devices = () if model is None else tuple(_device(name, index, model) for index in range(self.gpus))
        return Node(name, self.cpus, self.memory_mib, devices, labels=dict(self.labels))


def _bought(year: int, group: _Group) -> _Group:
    return replace(group, labels={"bought": str(year)})


_DEMO_GROUPS = (
    _bought(2022, _Group("a100", 3, 8, DEVICE_MODELS["A100"], 64, 1024 * 1024)),
    _bought(2018, _Group("v100", 4, 4, DEVICE_MODELS["V100"], 32, 384 * 1024)),
    _bought(2021, _Group("rtx-3090", 10, 4, DEVICE_MODELS["RTX-3090"], 16, 256 * 1024)),
    _bought(2019, _Group("t4", 10, 2, DEVICE_MODELS["T4"], 12, 96 * 1024)),
    _bought(2016, _Group("cpu", 11, 0, None, 12, 64 * 1024)),
    _bought(2020, _Group("cpu", 2, 0, None, 28, 256 * 1024)),
)


def _read_group(part: str) -> _Group:
    match = _GROUP.fullmatch(part)
    if match is None or int(match["count"]) == 0:
        raise Invalid(f"{part!r} does not describe nodes.", "Write 8x4xA100 (nodes x GPUs x type) or 3xcpu.")
    count = int(match["count"])
    if match["type"] is None:
        return _Group("cpu", count, 0, None, 32, 128 * 1024)
    model = DEVICE_MODELS.get(match["type"].upper())
    if model is None:
        raise Invalid(f"Unknown GPU type {match['type']!r}.", f"Known types: {', '.join(DEVICE_MODELS)}.")
    gpus = int(match["gpus"])
    if not 1 <= gpus <= 16:
        raise Invalid(f"A node has 1 to 16 GPUs, not {gpus}.", "Write 3xcpu for nodes without GPUs.")
    return _Group(model.type.lower(), count, gpus, model, model.cpus_per_gpu * gpus, model.host_mib_per_gpu * gpus)


def _device(node: str, index: int, model: DeviceModel) -> Device:
    name = f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{index}')}"
    return Device(
        uuid=name,
        index=index,
        type=model.type,
        name=model.name,
        memory_mib=model.memory_mib,
        memory_used_mib=IDLE_MEMORY_MIB,
        utilisation=0,
        temperature=_resting_temperature(name),
        power_watts=IDLE_WATTS,
    )


def _resting_temperature(device_uuid: str) -> int:
    return 29 + zlib.crc32(device_uuid.encode()) % 9


def _utilisation(level: float, seed: int, seconds: float, warm_up: float) -> int:
    period = 120 + (seed >> 4) % 400
    wave = math.sin(2 * math.pi * seconds / period) * min(12, level / 2)
    return round(min(100.0, max(0.0, (level + wave) * warm_up)))


def _process(attempt: Attempt, memory_mib: int) -> DeviceProcess:
    job = attempt.job
    command = job.spec.command[0] if job.spec.command else "sh"
    return DeviceProcess(2000 + zlib.crc32(attempt.id.encode()) % 60_000, memory_mib, job.unix_user, command)
