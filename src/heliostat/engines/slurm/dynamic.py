"""Other GPUs for a node while Slurm runs: the plan, and what each step needs to know. Pure.

Slurm takes the GPUs of a node from its slurmd when that joins. So the node leaves and joins again with other
words, which only a dynamic node can (`slurmd -Z`). Nothing that runs is touched: it leaves when it is empty.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self

from heliostat.engines.slurm.parse import gpus_of
from heliostat.errors import Conflict
from heliostat.models import Recomposition

REASON = "heliostat: its GPUs are being changed"
_PAIR = re.compile(r"(\w+)=(\S*)")
_SIGNED = re.compile(r" \[[^\[\]]*\]\s*$")  # by whom and when
_CONF = re.compile(r"[A-Za-z0-9_.:=, -]+")
_GONE = ("down", "unknown", "not_responding", "no_respond", "fail", "error", "future", "*")
_BUSY = ("alloc", "mix", "completing")


class Step(StrEnum):
    """In this order. Each may be done again."""

    DRAIN = "drain"
    EMPTY = "empty"
    STOP = "stop"
    DELETE = "delete"
    START = "start"
    JOIN = "join"

    @property
    def next(self) -> "Step | None":
        steps = list(Step)
        return steps[steps.index(self) + 1] if self is not steps[-1] else None


_SENTENCES = {
    Step.DRAIN: "Let Slurm start nothing new on {node}.",
    Step.EMPTY: "Wait until the jobs that run there have ended.",
    Step.STOP: "Stop slurmd on {node}.",
    Step.DELETE: "Let Slurm forget {node}.",
    Step.START: "Start slurmd with {conf}.",
    Step.JOIN: "Wait until {node} has joined Slurm again with these GPUs.",
}


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node as Slurm has it now."""

    name: str
    state: str  # in small letters: idle+drain+dynamic_norm
    gpus: Mapping[str, int]
    base: str  # its words for slurmd, but for its GPUs
    cpus_used: int
    reason: str | None  # of its being drained

    @property
    def is_dynamic(self) -> bool:
        return "dynamic" in self.state

    @property
    def is_drained(self) -> bool:
        return "drain" in self.state

    @property
    def is_empty(self) -> bool:
        return not self.cpus_used and not any(word in self.state for word in _BUSY)

    @property
    def answers(self) -> bool:
        return not any(word in self.state for word in _GONE)


@dataclass(frozen=True, slots=True)
class Work:
    """One node that is being changed, as it is noted on disk."""

    node: str
    gpus: Mapping[str, int]  # in Slurm's words
    base: str
    step: Step = Step.DRAIN
    was_drained: str | None = None  # for what reason, by somebody else: so it will be again
    error: str | None = field(default=None, compare=False)

    @property
    def conf(self) -> str:
        """What `slurmd -Z --conf` is told."""
        gres = ",".join(f"gpu:{kind}:{count}" for kind, count in sorted(self.gpus.items()) if count)
        return f"{self.base} Gres={gres}" if gres else self.base

    @property
    def told(self) -> Recomposition:
        steps = tuple(text.format(node=self.node, conf=self.conf) for text in _SENTENCES.values())
        return Recomposition(self.node, self.gpus, steps, list(Step).index(self.step), self.error)

    def has_joined_as_wished(self, seen: SeenNode) -> bool:
        return dict(seen.gpus) == {kind: count for kind, count in self.gpus.items() if count}

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, kept: Mapping[str, Any]) -> Self:
        return cls(**{**kept, "step": Step(kept["step"])})


def work_of(seen: SeenNode, gpus: Mapping[str, int]) -> Work:
    """What to do so that the node has these GPUs. Raises Conflict."""
    if not seen.is_dynamic:
        raise Conflict(
            f"{seen.name} is written in slurm.conf; only a node that joins by itself can change its GPUs.",
            f"Take it out of slurm.conf, set MaxNodeCount there, and start it with slurmd -Z -N {seen.name}.",
        )
    was = seen.reason if seen.is_drained and seen.reason != REASON else None
    work = Work(seen.name, gpus, seen.base, was_drained=was)
    if not _CONF.fullmatch(work.conf):
        raise Conflict(
            f"Slurm describes {seen.name} in words that cannot be passed on: {work.conf!r}.",
            f"Start its slurmd with plain words: slurmd -Z -N {seen.name}.",
        )
    return work


def seen_node(text: str) -> SeenNode | None:
    """Of `scontrol --oneliner show node`; None: there is none."""
    before, _, reason = text.partition(" Reason=")
    facts = dict(_PAIR.findall(before))
    if "NodeName" not in facts or "State" not in facts:
        return None
    gpus: dict[str, int] = {}
    for kind, count in gpus_of(facts.get("Gres", "")):
        gpus[kind] = gpus.get(kind, 0) + count
    used = facts.get("CPUAlloc", "")
    return SeenNode(
        facts["NodeName"],
        facts["State"].lower(),
        gpus,
        _base(facts),
        int(used) if used.isdecimal() else 0,
        _SIGNED.sub("", reason).strip() or None,
    )


def command_argv(template: Sequence[str], verb: str, work: Work) -> list[str]:
    """The words of an admin with ours filled in; each stays one word."""
    values = {"{verb}": verb, "{node}": work.node, "{conf}": work.conf}
    return [re.sub(r"\{(verb|node|conf)\}", lambda found: values[found[0]], word) for word in template]


def _base(facts: Mapping[str, str]) -> str:
    names = {
        "CPUs": "CPUTot",
        "Boards": "Boards",
        "Sockets": "Sockets",
        "CoresPerSocket": "CoresPerSocket",
        "ThreadsPerCore": "ThreadsPerCore",
        "RealMemory": "RealMemory",
        "Feature": "AvailableFeatures",
        "Weight": "Weight",
    }
    if facts.get("Boards") == "1":
        del names["Boards"]  # slurmd takes either boards or sockets alone
    words = {ours: facts.get(theirs, "(null)") for ours, theirs in names.items()}
    return " ".join(f"{name}={value}" for name, value in words.items() if value not in ("(null)", ""))
