"""What the form asks for: one line per field. A field of the API that is not here fails the suite."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from heliostat.models.jobs import NETWORKS, PRIORITY_CLASSES, Layout
from heliostat.models.quantities import STOP_SIGNALS

Kind = Literal[
    "line", "text", "whole", "number", "seconds", "choice", "flag", "labels", "lines", "variables", "software"
]
"""How it is typed and read: `texts` has what reads and writes each."""
Options = Sequence[tuple[str, str]]

NOT_OF_THE_API = frozenset({"command_kind"})


@dataclass(frozen=True, slots=True)
class Field:
    name: str  # as the API has it
    label: str
    kind: Kind = "line"
    hint: str = ""
    placeholder: str = ""
    options: Options = ()  # of a choice; those that depend on the cluster come with the page
    default: str = ""
    foreseen: bool = False  # it makes a difference to when the job starts
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    title: str  # empty: what most people need
    fields: tuple[Field, ...]


def _choices(values: Sequence[str]) -> Options:
    return tuple((value, value) for value in values)


GROUPS = (
    Group(
        "",
        (
            Field(
                "command",
                "Command",
                "text",
                "As you would type it in a shell.",
                "python train.py --epochs 10",
                wide=True,
            ),
            Field("gpus", "GPUs", "number", "Or a part of one: 0.5", "0", foreseen=True),
            Field("gpu_type", "GPU type", "choice", foreseen=True),
            Field("time_limit", "Time limit", hint="30m, 4h, 1d12h. Short jobs find room sooner.", foreseen=True),
            Field("name", "Name", placeholder="that of the program", foreseen=True),
            Field("project", "Project", "choice", foreseen=True),
        ),
    ),
    Group(
        "Resources",
        (
            Field("cpus", "CPUs", "whole", "Cores of each task.", "a fair part", foreseen=True),
            Field("memory", "Memory", hint="16G, 512M. A hard limit.", placeholder="a fair part", foreseen=True),
            Field(
                "gpu_memory",
                "GPU memory",
                hint="The least each GPU must have: 40G",
                placeholder="any",
                foreseen=True,
            ),
            Field(
                "tasks",
                "Tasks",
                "whole",
                "Parallel members that start together; the rest is of one.",
                "1",
                foreseen=True,
            ),
            Field(
                "layout",
                "Layout of tasks",
                "choice",
                options=((Layout.PACK, "pack: on few nodes"), (Layout.SPREAD, "spread: a node each")),
                default=Layout.PACK,
                foreseen=True,
            ),
            Field(
                "template",
                "Started by",
                "choice",
                options=(
                    ("", "itself"),
                    ("torchrun", "torchrun: PyTorch, one process a GPU"),
                    ("mpi", "mpirun"),
                    ("spark", "Spark: a cluster of its tasks"),
                ),
            ),
            Field("array", "Array", hint="0-99: one job per index; 0-99%8: 8 at once"),
            Field(
                "labels", "Labels of nodes", "labels", "Those its nodes must have: fast, disk=ssd", foreseen=True
            ),
            Field("reservation", "Reservation", hint="Waits for it and runs on its nodes"),
            Field("exclusive", "Nobody else on its nodes", "flag", foreseen=True),
        ),
    ),
    Group(
        "Its turn",
        (
            Field(
                "priority_class",
                "Class",
                "choice",
                options=_choices(PRIORITY_CLASSES),
                default="normal",
                foreseen=True,
            ),
            Field(
                "priority",
                "Priority",
                "whole",
                "Below 0 lets others pass; above 0 is for managers.",
                "0",
                foreseen=True,
            ),
            Field("max_retries", "Retries", "whole", "How often to try again, after what is named beside.", "0"),
            Field(
                "retry_on",
                "Retry after",
                "labels",
                "lost, preempted, timed_out, out_of_memory, exit, exit:75",
                "lost, preempted",
            ),
            Field("retry_delay", "Retry delay", hint="Before the first: 30s; it doubles.", placeholder="0s"),
            Field("notify", "Tell me when it", "labels", "started, ended, failed, late; see Notices"),
            Field(
                "preemptible",
                "May be stopped and queued again for others",
                "flag",
                "It should save its work now and then.",
                foreseen=True,
            ),
            Field("overtime", "May run past its limit while nobody waits", "flag", foreseen=True),
            Field("held", "Hold: do not start before I release it", "flag"),
        ),
    ),
    Group(
        "After others",
        (
            Field(
                "after",
                "Start after",
                "labels",
                "Jobs that have to complete first: 12, 13, array:5",
                foreseen=True,
            ),
            Field("begin", "Not before", hint="2026-12-01T08:00 in UTC, or +2h", foreseen=True),
            Field("after_any", "Start when these are over", "labels", "However they end.", foreseen=True),
            Field("after_failed", "Start if these fail", "labels", "When they are over and have not completed."),
            Field("after_each", "Element by element after", "labels", "Of an array: another array, as array:5"),
        ),
    ),
    Group(
        "What it runs",
        (
            Field(
                "command_kind",
                "The command is",
                "choice",
                options=(("shell", "a line for the shell"), ("words", "words, without a shell")),
                default="shell",
            ),
            Field(
                "workdir",
                "Working directory",
                hint="An absolute path on the node.",
                placeholder="a fresh private folder",
            ),
            Field(
                "upload", "Uploaded code", hint="The id of code sent with helio run --upload; it runs in a copy."
            ),
            Field(
                "script",
                "Script",
                "text",
                "Instead of a command; the command then holds its arguments.",
                "#!/bin/bash",
                wide=True,
            ),
            Field(
                "environment",
                "Packages",
                "software",
                "Of Python, one a line, as in requirements.txt; or the digest of an environment of yours.",
                "torch==2.4.1",
                wide=True,
            ),
            Field(
                "env",
                "Environment variables",
                "variables",
                'NAME=value, one a line; "…" with \\n for several lines.',
                "WANDB_MODE=offline",
                wide=True,
            ),
        ),
    ),
    Group(
        "Its container",
        (
            Field("image", "Image", hint="REGISTRY/NAME:TAG", placeholder="none: the node's own software"),
            Field(
                "runtime",
                "Isolation",
                "choice",
                options=(
                    ("", "as usual"),
                    ("process", "process: none"),
                    ("bubblewrap", "bubblewrap: no image, only files it needs"),
                    ("podman", "podman"),
                    ("apptainer", "apptainer"),
                    ("docker", "docker"),
                ),
            ),
            Field("network", "Network", "choice", options=(("", "as usual"), *_choices(NETWORKS))),
            Field(
                "mounts",
                "Mounts",
                "lines",
                "What it sees of the node, one a line: SRC:DST or SRC:DST:ro",
                "/data/scans:/scans:ro",
                wide=True,
            ),
        ),
    ),
    Group(
        "When it is stopped",
        (
            Field(
                "preempt_signal",
                "Signal to save its work",
                "choice",
                options=_choices(STOP_SIGNALS),
                default="TERM",
            ),
            Field("grace_seconds", "Grace", "seconds", "Between that signal and KILL: 10s, 2m", "10s"),
        ),
    ),
)
FIELDS = {field.name: field for group in GROUPS for field in group.fields}
DEFAULTS = {name: field.default for name, field in FIELDS.items()}
