"""What a machine says of itself (`slurmd -C`, `nvidia-smi -L`) as a part of nodes.toml. Pure."""

import re
from collections import Counter

from heliostat.errors import Invalid
from heliostat.provision.slurm import name_validation

_NUMBERS = ("CPUs", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory")
_GPU = re.compile(r"GPU (\d+): (.+?) \(UUID: [^)]*\)")
_MAKERS = re.compile(r"^(nvidia|geforce|tesla|quadro)\s+", re.IGNORECASE)
_KEPT_MIB = 2048  # for the system itself
_KEPT_PART = 0.02


def render_nodes_toml(said: str) -> str:
    """A [[nodes]] for each `NodeName=…` line; GPUs belong to the line before them. Raises Invalid."""
    parts: list[tuple[dict[str, str], list[tuple[int, str]]]] = []
    for line in (line.strip() for line in said.splitlines()):
        if line.startswith("NodeName="):
            parts.append((dict(word.split("=", 1) for word in line.split() if "=" in word), []))
        elif (gpu := _GPU.fullmatch(line)) and parts:
            parts[-1][1].append((int(gpu[1]), normalize_gpu_type(gpu[2])))
    if not parts:
        hint = "It needs what `slurmd -C` prints on the machine, and then `nvidia-smi -L`."
        raise Invalid("There is no line NodeName=… in it.", hint)
    return "\n".join(_node(words, sorted(gpus)) for words, gpus in parts)


def normalize_gpu_type(name: str) -> str:
    """`NVIDIA A100-SXM4-80GB` as a100-sxm4-80gb: one word, as short as it may be."""
    short = name
    while (shorter := _MAKERS.sub("", short)) != short:
        short = shorter
    word = re.sub(r"[^a-z0-9.-]+", "-", short.lower()).strip("-.")
    return name_validation.require_gpu_type(f"gpu{word}" if word.isdecimal() else word[:40], "nvidia-smi")


def _node(words: dict[str, str], gpus: list[tuple[int, str]]) -> str:
    name = name_validation.require_host_name(words.get("NodeName", "").partition(".")[0], "slurmd -C")
    wrong = [key for key in _NUMBERS if not re.fullmatch(r"[0-9]{1,9}", words.get(key, ""))]
    if wrong:
        raise Invalid(
            f"The line of {name} does not say {', '.join(wrong)}.", "Paste the whole line of `slurmd -C`."
        )
    cpus, sockets, cores, threads, memory = (int(words[key]) for key in _NUMBERS)
    boards = int(words["Boards"]) if re.fullmatch(r"[1-9]", words.get("Boards", "")) else 1
    free = memory - max(_KEPT_MIB, int(memory * _KEPT_PART)) if memory > 2 * _KEPT_MIB else memory // 2
    lines = [
        "[[nodes]]",
        f'name = "{name}"',
        f"cpus = {cpus}",
        f"sockets = {sockets * boards}",
        f"cores_per_socket = {cores}",
        f"threads_per_core = {threads}",
        f'memory = "{max(1, free)}M"',
    ]
    return "\n".join([*lines, *_gpus(gpus)]) + "\n"


def _gpus(gpus: list[tuple[int, str]]) -> list[str]:
    if not gpus:
        return []
    counted = Counter(kind for _, kind in gpus)
    if len(counted) == 1:
        return [f'gpus = {{ "{kind}" = {count} }}' for kind, count in counted.items()]
    files = {kind: ",".join(str(number) for number, of in gpus if of == kind) for kind in counted}
    return ["gpus = { " + ", ".join(f'"{kind}" = "/dev/nvidia[{which}]"' for kind, which in files.items()) + " }"]
