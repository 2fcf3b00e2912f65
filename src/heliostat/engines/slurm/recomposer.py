"""Other GPUs for a node while Slurm runs, one step after the other, in a thread of its own.

Slurm takes the GPUs of a node from its slurmd when that joins. So the node leaves and joins again with other
words, which only a dynamic node can (`slurmd -Z`). Nothing that runs is touched: it leaves when it is empty.
Where each node is, is noted on disk before the step is done: a server that was killed goes on there.
"""

import json
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.engines.slurm.command_output import parse_gres_gpus
from heliostat.errors import Conflict, EngineUnavailable
from heliostat.models import Recomposition
from heliostat.server_log import get_logger

DRAIN_REASON = "heliostat: its GPUs are being changed"
_PAIR = re.compile(r"(\w+)=(\S*)")
_SIGNED = re.compile(r" \[[^\[\]]*\]\s*$")  # by whom and when
_CONF = re.compile(r"[A-Za-z0-9_.:=, -]+")
_GONE = ("down", "unknown", "not_responding", "no_respond", "fail", "error", "future", "*")
_BUSY = ("alloc", "mix", "completing")
log = get_logger()
_EVERY_SECONDS = 1.0
_AGAIN_SECONDS = 5.0  # after a step that did not work
_JOIN_SECONDS = 60.0
_COMMAND_SECONDS = 120.0
_SUFFIX = ".recompose"


class RecompositionStep(StrEnum):
    """In this order. Each may be done again."""

    DRAIN = "drain"
    EMPTY = "empty"
    STOP = "stop"
    DELETE = "delete"
    START = "start"
    JOIN = "join"

    @property
    def next(self) -> "RecompositionStep | None":
        steps = list(RecompositionStep)
        return steps[steps.index(self) + 1] if self is not steps[-1] else None


_SENTENCES = {
    RecompositionStep.DRAIN: "Let Slurm start nothing new on {node}.",
    RecompositionStep.EMPTY: "Wait until the jobs that run there have ended.",
    RecompositionStep.STOP: "Stop slurmd on {node}.",
    RecompositionStep.DELETE: "Let Slurm forget {node}.",
    RecompositionStep.START: "Start slurmd with {conf}.",
    RecompositionStep.JOIN: "Wait until {node} has joined Slurm again with these GPUs.",
}


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A node as Slurm has it now."""

    name: str
    state: str  # in small letters: idle+drain+dynamic_norm
    gpus: Mapping[str, int]
    base_config: str  # its words for slurmd, but for its GPUs
    allocated_cpus: int
    drain_reason: str | None  # of its being drained

    @property
    def is_dynamic(self) -> bool:
        return "dynamic" in self.state

    @property
    def is_drained(self) -> bool:
        return "drain" in self.state

    @property
    def is_empty(self) -> bool:
        return not self.allocated_cpus and not any(word in self.state for word in _BUSY)

    @property
    def is_responding(self) -> bool:
        return not any(word in self.state for word in _GONE)


@dataclass(frozen=True, slots=True)
class PendingRecomposition:
    """One node that is being changed, as it is noted on disk."""

    node: str
    gpus: Mapping[str, int]  # in Slurm's words
    base: str
    step: RecompositionStep = RecompositionStep.DRAIN
    was_drained: str | None = None  # for what reason, by somebody else: so it will be again
    error: str | None = field(default=None, compare=False)

    @property
    def slurmd_conf(self) -> str:
        """What `slurmd -Z --conf` is told."""
        gres = ",".join(f"gpu:{kind}:{count}" for kind, count in sorted(self.gpus.items()) if count)
        return f"{self.base} Gres={gres}" if gres else self.base

    @property
    def recomposition(self) -> Recomposition:
        steps = tuple(text.format(node=self.node, conf=self.slurmd_conf) for text in _SENTENCES.values())
        return Recomposition(self.node, self.gpus, steps, list(RecompositionStep).index(self.step), self.error)

    def has_desired_gpus(self, seen: ObservedNode) -> bool:
        return dict(seen.gpus) == {kind: count for kind, count in self.gpus.items() if count}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Self:
        return cls(**{**kept, "step": RecompositionStep(kept["step"])})


def plan_recomposition(seen: ObservedNode, gpus: Mapping[str, int]) -> PendingRecomposition:
    """What to do so that the node has these GPUs. Raises Conflict."""
    if not seen.is_dynamic:
        raise Conflict(
            f"{seen.name} is written in slurm.conf; only a node that joins by itself can change its GPUs.",
            f"Take it out of slurm.conf, set MaxNodeCount there, and start it with slurmd -Z -N {seen.name}.",
        )
    was = seen.drain_reason if seen.is_drained and seen.drain_reason != DRAIN_REASON else None
    work = PendingRecomposition(seen.name, gpus, seen.base_config, was_drained=was)
    if not _CONF.fullmatch(work.slurmd_conf):
        raise Conflict(
            f"Slurm describes {seen.name} in words that cannot be passed on: {work.slurmd_conf!r}.",
            f"Start its slurmd with plain words: slurmd -Z -N {seen.name}.",
        )
    return work


def parse_scontrol_node(text: str) -> ObservedNode | None:
    """Of `scontrol --oneliner show node`; None: there is none."""
    before, _, reason = text.partition(" Reason=")
    facts = dict(_PAIR.findall(before))
    if "NodeName" not in facts or "State" not in facts:
        return None
    gpus: dict[str, int] = {}
    for kind, count in parse_gres_gpus(facts.get("Gres", "")):
        gpus[kind] = gpus.get(kind, 0) + count
    used = facts.get("CPUAlloc", "")
    return ObservedNode(
        facts["NodeName"],
        facts["State"].lower(),
        gpus,
        _base(facts),
        int(used) if used.isdecimal() else 0,
        _SIGNED.sub("", reason).strip() or None,
    )


def node_command_argv(template: Sequence[str], verb: str, work: PendingRecomposition) -> list[str]:
    """The words of an admin with ours filled in; each stays one word."""
    values = {"{verb}": verb, "{node}": work.node, "{conf}": work.slurmd_conf}
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


class StepFailed(Exception):
    """Says why, and what to do; it is tried again."""


class Recomposer:
    """`changed` is called when a node has come back."""

    def __init__(
        self,
        folder: Path,
        client: SlurmClient,
        template: Sequence[str],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder, self._client, self._template, self._changed = folder, client, template, changed
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._started: dict[str, float] = {}  # when slurmd was, by node
        self._again: dict[str, float] = {}
        self._works = self._noted()
        if self._works:
            self._begin()

    def recompose(self, node: str, gpus: Mapping[str, int], *, dry_run: bool = False) -> Recomposition:
        """`gpus` in Slurm's words. Asked again, the newer wish counts. Raises Conflict or EngineUnavailable."""
        if not self._template:
            raise Conflict(
                "Heliostat has not been told how to stop and start slurmd on a node.",
                "Set node_command in [slurm] of cluster.toml; docs/admins.md has an example.",
            )
        work = self._wish(node, gpus)
        if work is None:
            return Recomposition(node, gpus, (), 0)
        if not dry_run:
            with self._lock:
                self._note(work)
            self._again.pop(node, None)
            self._begin()
        return work.recomposition

    def find(self, node: str) -> Recomposition | None:
        """None: nothing is being changed there."""
        work = self._works.get(node)
        return work.recomposition if work else None

    def advance(self) -> None:
        """One step for each node, unless it has to wait."""
        for work in list(self._works.values()):
            if not self._closed and time.monotonic() >= self._again.get(work.node, 0.0):
                self._try(work)

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _wish(self, node: str, gpus: Mapping[str, int]) -> PendingRecomposition | None:
        """None: it has these GPUs."""
        seen, before = self._look(node), self._works.get(node)
        if seen is None and before is None:
            raise Conflict(f"Slurm has no node {node} now.", "See `sinfo --Node`.")
        if seen is None:
            return before and replace(before, gpus=gpus, step=RecompositionStep.STOP, error=None)
        work = plan_recomposition(seen, gpus)
        if before is not None:
            return replace(work, was_drained=before.was_drained)
        return None if work.has_desired_gpus(seen) else work

    def _begin(self) -> None:
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="recomposer", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            self.advance()
            self._wake.wait(_EVERY_SECONDS if self._works else None)
            self._wake.clear()

    def _try(self, work: PendingRecomposition) -> None:
        try:
            after: PendingRecomposition | None = self._after(work)
        except (StepFailed, SlurmRefused) as error:
            after = replace(work, error=str(error))
        except EngineUnavailable as error:
            after = replace(work, error=error.message)
        except Exception as error:  # this thread must not die
            log.exception("recompose_failed", node=work.node)
            after = replace(work, error=str(error))
        if after is not None and after.error:
            self._again[work.node] = time.monotonic() + _AGAIN_SECONDS
        with self._lock:
            if self._works.get(work.node) is work:  # else there is a newer wish
                self._note(after) if after else self._forget(work)
        if after is not None and after.step is not work.step and not after.error:
            self._wake.set()

    def _after(self, work: PendingRecomposition) -> PendingRecomposition | None:
        """The work once its step was done, or the same if it has to wait; None: there is nothing left to do."""
        seen = self._look(work.node)
        if work.step is RecompositionStep.DRAIN and seen:
            self._client.update_node(work.node, "State=DRAIN", f"Reason={DRAIN_REASON}")
        elif work.step is RecompositionStep.EMPTY and seen:
            if not seen.is_drained:
                log.info("recompose_abandoned", node=work.node)  # somebody resumed it
                return None
            if not seen.is_empty:
                return replace(work, error=None)
        elif work.step in (RecompositionStep.STOP, RecompositionStep.START):
            self._command(work)
        elif work.step is RecompositionStep.DELETE and seen:
            self._client.run_command(["scontrol", "delete", f"NodeName={work.node}"])
        elif work.step is RecompositionStep.JOIN:
            return self._joined(work, seen)
        return replace(work, step=work.step.next or work.step, error=None)

    def _command(self, work: PendingRecomposition) -> None:
        run_node_command(node_command_argv(self._template, work.step.value, work))
        if work.step is RecompositionStep.START:
            self._started[work.node] = time.monotonic()

    def _joined(self, work: PendingRecomposition, seen: ObservedNode | None) -> PendingRecomposition | None:
        if seen is None or not seen.is_responding:
            since = time.monotonic() - self._started.setdefault(work.node, time.monotonic())
            if since > _JOIN_SECONDS:
                raise StepFailed(f"{work.node} has not joined Slurm in {since:.0f} s; see the log of its slurmd.")
            return work
        if not work.has_desired_gpus(seen):
            self._client.update_node(work.node, "State=DRAIN", f"Reason={DRAIN_REASON}")
            has = ", ".join(f"{count} {kind}" for kind, count in seen.gpus.items()) or "no GPU"
            raise StepFailed(f"{work.node} has joined with {has}; see gres.conf there and the log of its slurmd.")
        if work.was_drained:
            self._client.update_node(work.node, "State=DRAIN", f"Reason={work.was_drained}")
        elif seen.is_drained:
            self._client.update_node(work.node, "State=RESUME")
        self._changed()
        log.info("recomposed", node=work.node, gpus=dict(work.gpus))
        return None

    def _look(self, node: str) -> ObservedNode | None:
        try:
            return parse_scontrol_node(self._client.run_command(["scontrol", "--oneliner", "show", "node", node]))
        except SlurmRefused as error:
            if "not found" in error.output.lower() or "invalid node name" in error.output.lower():
                return None
            raise EngineUnavailable(f"Slurm does not say what {node} is: {error}.") from error

    def _note(self, work: PendingRecomposition) -> None:
        path = self._path(work.node)
        if self._works.get(work.node) != work:
            fresh = path.with_name(f".{path.name}")
            with open(fresh, "w", encoding="utf-8") as file:
                json.dump(work.to_json(), file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, path)
        self._works = {**self._works, work.node: work}

    def _forget(self, work: PendingRecomposition) -> None:
        self._path(work.node).unlink(missing_ok=True)
        self._works = {name: one for name, one in self._works.items() if name != work.node}

    def _noted(self) -> dict[str, PendingRecomposition]:
        found = {}
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if not path.name.startswith("."):
                work = PendingRecomposition.from_json(json.loads(path.read_text(encoding="utf-8")))
                found[work.node] = work
        return found

    def _path(self, node: str) -> Path:
        return self._folder / f"{node}{_SUFFIX}"


def run_node_command(argv: Sequence[str]) -> None:
    """An admin's command on a node. Its output goes to a file: a daemon it leaves behind may hold on to it."""
    with tempfile.TemporaryFile() as said:
        try:
            subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                timeout=_COMMAND_SECONDS,
                check=True,
                cwd="/",
            )
        except subprocess.CalledProcessError as error:
            said.seek(0)
            words = said.read(4096).decode("utf-8", "replace").strip().splitlines()
            why = words[-1][:200] if words else "it said nothing"
            raise StepFailed(f"node_command ended with {error.returncode}: {why}") from None
        except subprocess.TimeoutExpired:
            raise StepFailed(f"node_command took longer than {_COMMAND_SECONDS:.0f} s.") from None
        except OSError as error:
            raise StepFailed(f"node_command cannot be run: {argv[0]}: {error.strerror}.") from None
