"""Hardware of a node, from `slurmd -C` and `nvidia-smi -L`, as a section of nodes.toml. Pure."""

import re
from collections import Counter

from heliostat.errors import Invalid
from heliostat.provision.slurm import name_validation

_NUMBERS = ("CPUs", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory")
_GPU = re.compile(r"GPU (\d+): (.+?) \(UUID: [^)]*\)")
_MAKERS = re.compile(r"^(nvidia|geforce|tesla|quadro)\s+", re.IGNORECASE)
_SYSTEM_MIB = 2048  # reserved for the operating system
_SYSTEM_FRACTION = 0.02


def render_nodes_toml(output: str) -> str:
    """A [[nodes]] for each `NodeName=…` line; GPUs belong to the line before them. Raises Invalid."""
    nodes: list[tuple[dict[str, str], list[tuple[int, str]]]] = []
    for line in (line.strip() for line in output.splitlines()):
        if line.startswith("NodeName="):
            nodes.append((dict(word.split("=", 1) for word in line.split() if "=" in word), []))
        elif (gpu := _GPU.fullmatch(line)) and nodes:
            nodes[-1][1].append((int(gpu[1]), normalize_gpu_type(gpu[2])))
    if not nodes:
        hint = "Paste the output of `slurmd -C` on the node, followed by that of `nvidia-smi -L`."
        raise Invalid("The input has no line NodeName=….", hint)
    return "\n".join(_node(values, sorted(gpus)) for values, gpus in nodes)


def normalize_gpu_type(name: str) -> str:
    """A short single word: `NVIDIA A100-SXM4-80GB` becomes a100-sxm4-80gb."""
    short = name
    while (shorter := _MAKERS.sub("", short)) != short:
        short = shorter
    word = re.sub(r"[^a-z0-9.-]+", "-", short.lower()).strip("-.")
    return name_validation.require_gpu_type(f"gpu{word}" if word.isdecimal() else word[:40], "nvidia-smi")


def _node(values: dict[str, str], gpus: list[tuple[int, str]]) -> str:
    name = name_validation.require_host_name(values.get("NodeName", "").partition(".")[0], "slurmd -C")
    missing = [key for key in _NUMBERS if not re.fullmatch(r"[0-9]{1,9}", values.get(key, ""))]
    if missing:
        raise Invalid(
            f"The line of {name} does not contain {', '.join(missing)}.", "Paste the whole line of `slurmd -C`."
        )
    cpus, sockets, cores, threads, memory = (int(values[key]) for key in _NUMBERS)
    boards = int(values["Boards"]) if re.fullmatch(r"[1-9]", values.get("Boards", "")) else 1
    reserved = max(_SYSTEM_MIB, int(memory * _SYSTEM_FRACTION))
    for_jobs = memory - reserved if memory > 2 * _SYSTEM_MIB else memory // 2
    lines = [
        "[[nodes]]",
        f'name = "{name}"',
        f"cpus = {cpus}",
        f"sockets = {sockets * boards}",
        f"cores_per_socket = {cores}",
        f"threads_per_core = {threads}",
        f'memory = "{max(1, for_jobs)}M"',
    ]
    return "\n".join([*lines, *_gpus(gpus)]) + "\n"


def _gpus(gpus: list[tuple[int, str]]) -> list[str]:
    if not gpus:
        return []
    counts = Counter(kind for _, kind in gpus)
    if len(counts) == 1:
        return [f'gpus = {{ "{kind}" = {count} }}' for kind, count in counts.items()]
    indexes = {kind: ",".join(str(index) for index, its_kind in gpus if its_kind == kind) for kind in counts}
    files = (f'"{kind}" = "/dev/nvidia[{numbers}]"' for kind, numbers in indexes.items())
    return ["gpus = { " + ", ".join(files) + " }"]
