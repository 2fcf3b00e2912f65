"""Recomposition: changes the GPUs of a Slurm node while Slurm runs, step by step, in a thread of its own.

Slurm learns the GPUs of a node when its slurmd registers. So the node is deleted and registers again with another
configuration, which only a dynamic node can do (`slurmd -Z`). Running jobs are not touched: the node is drained
first. The current step of each node is stored on disk before it is done, so that a killed server continues there.
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
_REASON_SUFFIX = re.compile(r" \[[^\[\]]*\]\s*$")  # user and time
_CONF = re.compile(r"[A-Za-z0-9_.:=, -]+")
_NOT_RESPONDING = ("down", "unknown", "not_responding", "no_respond", "fail", "error", "future", "*")
_BUSY = ("alloc", "mix", "completing")
log = get_logger()
_POLL_SECONDS = 1.0
_RETRY_SECONDS = 5.0  # after a failed step
_JOIN_SECONDS = 60.0
_COMMAND_SECONDS = 120.0
_SUFFIX = ".recompose"


class RecompositionStep(StrEnum):
    """In this order. Each step is repeatable."""

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
    RecompositionStep.DRAIN: "Drain {node} in Slurm.",
    RecompositionStep.EMPTY: "Wait until the jobs on {node} have ended.",
    RecompositionStep.STOP: "Stop slurmd on {node}.",
    RecompositionStep.DELETE: "Delete {node} in Slurm.",
    RecompositionStep.START: "Start slurmd with {conf}.",
    RecompositionStep.JOIN: "Wait until {node} has registered in Slurm with these GPUs.",
}


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A node's current state in Slurm."""

    name: str
    state: str  # lowercase: idle+drain+dynamic_norm
    gpus: Mapping[str, int]
    base_config: str  # configuration for slurmd without GPUs
    allocated_cpus: int
    drain_reason: str | None

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
        return not any(word in self.state for word in _NOT_RESPONDING)


@dataclass(frozen=True, slots=True)
class PendingRecomposition:
    """A recomposition in progress, as stored on disk."""

    node: str
    gpus: Mapping[str, int]  # by Slurm's type names
    base: str
    step: RecompositionStep = RecompositionStep.DRAIN
    was_drained: str | None = None  # reason of an earlier drain, which is restored at the end
    error: str | None = field(default=None, compare=False)

    @property
    def slurmd_conf(self) -> str:
        """Argument of `slurmd -Z --conf`."""
        gres = ",".join(f"gpu:{kind}:{count}" for kind, count in sorted(self.gpus.items()) if count)
        return f"{self.base} Gres={gres}" if gres else self.base

    @property
    def recomposition(self) -> Recomposition:
        steps = tuple(text.format(node=self.node, conf=self.slurmd_conf) for text in _SENTENCES.values())
        return Recomposition(self.node, self.gpus, steps, list(RecompositionStep).index(self.step), self.error)

    def has_desired_gpus(self, observed: ObservedNode) -> bool:
        return dict(observed.gpus) == {kind: count for kind, count in self.gpus.items() if count}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{**data, "step": RecompositionStep(data["step"])})


def plan_recomposition(observed: ObservedNode, gpus: Mapping[str, int]) -> PendingRecomposition:
    """Raises Conflict if the node cannot be recomposed."""
    if not observed.is_dynamic:
        raise Conflict(
            f"{observed.name} is defined in slurm.conf; only a dynamic node can change its GPUs.",
            f"Remove it from slurm.conf, set MaxNodeCount there, and start it with slurmd -Z -N {observed.name}.",
        )
    was = observed.drain_reason if observed.is_drained and observed.drain_reason != DRAIN_REASON else None
    work = PendingRecomposition(observed.name, gpus, observed.base_config, was_drained=was)
    if not _CONF.fullmatch(work.slurmd_conf):
        raise Conflict(
            f"Slurm's configuration of {observed.name} has unsupported characters: {work.slurmd_conf!r}.",
            f"Start its slurmd without them: slurmd -Z -N {observed.name}.",
        )
    return work


def parse_scontrol_node(text: str) -> ObservedNode | None:
    """From `scontrol --oneliner show node`; None: the node does not exist."""
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
        _REASON_SUFFIX.sub("", reason).strip() or None,
    )


def node_command_argv(template: Sequence[str], verb: str, work: PendingRecomposition) -> list[str]:
    """The admin's template with the values filled in; each argument stays one argument."""
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
        del names["Boards"]  # slurmd accepts either boards or sockets
    words = {ours: facts.get(theirs, "(null)") for ours, theirs in names.items()}
    return " ".join(f"{name}={value}" for name, value in words.items() if value not in ("(null)", ""))


class StepFailed(Exception):
    """The message says why and what to do; the step is tried again."""


class Recomposer:
    """`changed` is called when a node has registered again."""

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
        self._started: dict[str, float] = {}  # start time of slurmd, by node
        self._retry_at: dict[str, float] = {}
        self._pending = self._load()
        if self._pending:
            self._wake_thread()

    def recompose(self, node: str, gpus: Mapping[str, int], *, dry_run: bool = False) -> Recomposition:
        """`gpus` by Slurm's type names. Replaces an older request. Raises Conflict or EngineUnavailable."""
        if not self._template:
            raise Conflict(
                "No command to stop and start slurmd on a node is configured.",
                "Set node_command in [slurm] of cluster.toml; docs/admins.md has an example.",
            )
        work = self._plan(node, gpus)
        if work is None:
            return Recomposition(node, gpus, (), 0)
        if not dry_run:
            with self._lock:
                self._save(work)
            self._retry_at.pop(node, None)
            self._wake_thread()
        return work.recomposition

    def find(self, node: str) -> Recomposition | None:
        """None: no recomposition of this node is in progress."""
        work = self._pending.get(node)
        return work.recomposition if work else None

    def advance(self) -> None:
        """Does one step for each node that does not have to wait."""
        for work in list(self._pending.values()):
            if not self._closed and time.monotonic() >= self._retry_at.get(work.node, 0.0):
                self._try(work)

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _plan(self, node: str, gpus: Mapping[str, int]) -> PendingRecomposition | None:
        """None: the node already has these GPUs."""
        observed, before = self._read_node(node), self._pending.get(node)
        if observed is None and before is None:
            raise Conflict(f"Slurm has no node {node}.", "See `sinfo --Node`.")
        if observed is None:
            return before and replace(before, gpus=gpus, step=RecompositionStep.STOP, error=None)
        work = plan_recomposition(observed, gpus)
        if before is not None:
            return replace(work, was_drained=before.was_drained)
        return None if work.has_desired_gpus(observed) else work

    def _wake_thread(self) -> None:
        self._wake.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="recomposer", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            self.advance()
            self._wake.wait(_POLL_SECONDS if self._pending else None)
            self._wake.clear()

    def _try(self, work: PendingRecomposition) -> None:
        try:
            after: PendingRecomposition | None = self._do_step(work)
        except (StepFailed, SlurmRefused) as error:
            after = replace(work, error=str(error))
        except EngineUnavailable as error:
            after = replace(work, error=error.message)
        except Exception as error:  # this thread must not die
            log.exception("recompose_failed", node=work.node)
            after = replace(work, error=str(error))
        if after is not None and after.error:
            self._retry_at[work.node] = time.monotonic() + _RETRY_SECONDS
        with self._lock:
            if self._pending.get(work.node) is work:  # else there is a newer request
                self._save(after) if after else self._forget(work)
        if after is not None and after.step is not work.step and not after.error:
            self._wake.set()

    def _do_step(self, work: PendingRecomposition) -> PendingRecomposition | None:
        """Returns the work with its next step, or with the same step if it has to wait; None: finished."""
        observed = self._read_node(work.node)
        if work.step is RecompositionStep.DRAIN and observed:
            self._client.update_node(work.node, "State=DRAIN", f"Reason={DRAIN_REASON}")
        elif work.step is RecompositionStep.EMPTY and observed:
            if not observed.is_drained:
                log.info("recompose_abandoned", node=work.node)  # an admin resumed it
                return None
            if not observed.is_empty:
                return replace(work, error=None)
        elif work.step in (RecompositionStep.STOP, RecompositionStep.START):
            self._run_command(work)
        elif work.step is RecompositionStep.DELETE and observed:
            self._client.run_command(["scontrol", "delete", f"NodeName={work.node}"])
        elif work.step is RecompositionStep.JOIN:
            return self._check_joined(work, observed)
        return replace(work, step=work.step.next or work.step, error=None)

    def _run_command(self, work: PendingRecomposition) -> None:
        run_node_command(node_command_argv(self._template, work.step.value, work))
        if work.step is RecompositionStep.START:
            self._started[work.node] = time.monotonic()

    def _check_joined(
        self, work: PendingRecomposition, observed: ObservedNode | None
    ) -> PendingRecomposition | None:
        if observed is None or not observed.is_responding:
            since = time.monotonic() - self._started.setdefault(work.node, time.monotonic())
            if since > _JOIN_SECONDS:
                raise StepFailed(f"{work.node} has not registered in {since:.0f} s; see the log of its slurmd.")
            return work
        if not work.has_desired_gpus(observed):
            self._client.update_node(work.node, "State=DRAIN", f"Reason={DRAIN_REASON}")
            gpus = ", ".join(f"{count} {kind}" for kind, count in observed.gpus.items()) or "no GPU"
            raise StepFailed(f"{work.node} registered with {gpus}; see its gres.conf and the log of its slurmd.")
        if work.was_drained:
            self._client.update_node(work.node, "State=DRAIN", f"Reason={work.was_drained}")
        elif observed.is_drained:
            self._client.update_node(work.node, "State=RESUME")
        self._changed()
        log.info("recomposed", node=work.node, gpus=dict(work.gpus))
        return None

    def _read_node(self, node: str) -> ObservedNode | None:
        try:
            return parse_scontrol_node(self._client.run_command(["scontrol", "--oneliner", "show", "node", node]))
        except SlurmRefused as error:
            if "not found" in error.output.lower() or "invalid node name" in error.output.lower():
                return None
            raise EngineUnavailable(f"Slurm does not report the state of {node}: {error}.") from error

    def _save(self, work: PendingRecomposition) -> None:
        path = self._path(work.node)
        if self._pending.get(work.node) != work:
            draft = path.with_name(f".{path.name}")
            with open(draft, "w", encoding="utf-8") as file:
                json.dump(work.to_json(), file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        self._pending = {**self._pending, work.node: work}

    def _forget(self, work: PendingRecomposition) -> None:
        self._path(work.node).unlink(missing_ok=True)
        self._pending = {name: other for name, other in self._pending.items() if name != work.node}

    def _load(self) -> dict[str, PendingRecomposition]:
        pending = {}
        for path in self._folder.glob(f"*{_SUFFIX}"):
            if not path.name.startswith("."):
                work = PendingRecomposition.from_json(json.loads(path.read_text(encoding="utf-8")))
                pending[work.node] = work
        return pending

    def _path(self, node: str) -> Path:
        return self._folder / f"{node}{_SUFFIX}"


def run_node_command(argv: Sequence[str]) -> None:
    """Runs the admin's command. Its output goes to a file: a daemon that it starts would keep a pipe open."""
    with tempfile.TemporaryFile() as output:
        try:
            subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=_COMMAND_SECONDS,
                check=True,
                cwd="/",
            )
        except subprocess.CalledProcessError as error:
            output.seek(0)
            lines = output.read(4096).decode("utf-8", "replace").strip().splitlines()
            message = lines[-1][:200] if lines else "no output"
            raise StepFailed(f"node_command failed with exit code {error.returncode}: {message}") from None
        except subprocess.TimeoutExpired:
            raise StepFailed(f"node_command took longer than {_COMMAND_SECONDS:.0f} s.") from None
        except OSError as error:
            raise StepFailed(f"node_command cannot be run: {argv[0]}: {error.strerror}.") from None
