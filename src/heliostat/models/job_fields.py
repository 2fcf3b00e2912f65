"""Every field of a job, once: the HTTP body, the options of `helio`, the web form, the command line it exports,
the Python client's types and the tables in `docs/` are made from this.

A new field is one entry here, its attribute in `JobRequest`, and the code that acts on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from heliostat.models.jobs import PRIORITY_CLASSES
from heliostat.models.quantities import STOP_SIGNALS

FieldKind = Literal[
    "command",  # a shell line, or a list of words
    "script",  # the text of a script; on the command line, a file
    "line",  # one line of text
    "choice",  # one of its choices
    "signal",  # the name of a signal
    "count",  # a whole number
    "gpus",  # a number of GPUs, or a part of one
    "memory",  # 16G, or MiB
    "duration",  # 4h, or seconds
    "seconds",  # a number; on the command line and in the form, a duration
    "flag",
    "array",  # 0-99%8
    "begin",  # a time, or +2h
    "labels",  # a list of labels of nodes
    "causes",  # a list of ends of an attempt
    "triggers",  # a list of what people can be notified of
    "parents",  # jobs to wait for
    "mounts",  # a list of SRC:DST
    "variables",  # environment variables
    "folder",  # an absolute path
    "upload",  # the id of an upload; on the command line and in Python, a folder
    "software",  # an environment
    "code",  # what git knows of a folder
]
FieldChoices = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class JobField:
    name: str  # in bodies and job files
    kind: FieldKind
    group: str
    help: str  # one or two sentences
    label: str = ""  # in the form; unless given, its name
    default: Any = None  # None: the server decides
    default_text: str = ""  # what happens when it is left out, where the default does not show it
    example: str = ""
    details: str = ""  # Markdown: what else the documentation says
    unit: str = ""  # of its number
    minimum: float | None = None
    maximum: float | None = None  # of text, in characters; of a list, in entries
    choices: FieldChoices = ()  # with their meaning
    alias: str = ""  # another name in bodies and job files
    python_parameter: str = ""  # in the Python client; unless given, its name
    cli_option: str = ""  # on the command line; unless given, its name
    cli_help: str = ""  # where the option takes something else than the body
    form_help: str = ""  # where the form does
    cli_commands: tuple[str, ...] = ("run",)  # of `helio` that have the option
    request_attribute: str | None = (
        ""  # the attribute of JobRequest; unless given, its name; None: several make one
    )
    affects_start: bool = False  # it changes when the job can start

    @property
    def title(self) -> str:
        return self.label or self.name.replace("_", " ").capitalize()

    @property
    def python_name(self) -> str:
        return self.python_parameter or self.name

    @property
    def cli_flags(self) -> tuple[str, ...]:
        """How its option is written, the shown one first."""
        names = [self.cli_option or f"--{self.name}", *([f"--{self.alias}"] if self.alias else [])]
        return tuple(dict.fromkeys(name.replace("_", "-") for name in names))

    @property
    def request_path(self) -> str | None:
        """Where a JobRequest has it: `placement.tasks`."""
        return self.name if self.request_attribute == "" else self.request_attribute

    @property
    def help_with_choices(self) -> str:
        """Its help with its choices."""
        values = ", ".join(value for value, _ in self.choices)
        return f"{self.help} One of {values}." if values else self.help


def _named(*values: str) -> FieldChoices:
    return tuple((value, "") for value in values)


_ALL = ("run", "when", "session", "notebook", "service", "schedule")
_JOB, _RESOURCES, _PRIORITY = "Job", "Resources", "Priority"
_RETRIES, _DEPENDENCIES, _SOFTWARE = "Retries and notifications", "Dependencies", "Code and software"
_CONTAINER, _STOPPING = "Container", "When it is stopped"
_FAIR = "a fair part of the node"

# Each entry in as few lines as it needs.
# fmt: off
JOB_FIELDS = (
    JobField("command", "command", _JOB, "What to run: a shell line, or a list of words that no shell touches.",
        default=[], example="python train.py --epochs 10", details="With `script`, the list of its arguments.",
        form_help="As you would type it in a shell.",
        cli_commands=(), request_attribute="spec.command"),
    JobField("gpus", "gpus", _JOB, "How many GPUs, or a part of one: 0.5.", "GPUs", default=0, default_text="0",
        details="They are for this job alone ([a part of a GPU](#a-part-of-a-gpu)).", cli_commands=_ALL,
        affects_start=True),
    JobField("gpu_type", "line", _JOB, "The type of GPU, as helio nodes shows it: A100, RTX-3090.", "GPU type",
        default_text="any", maximum=128, cli_commands=("run", "when", "session", "notebook"), affects_start=True),
    JobField("time_limit", "duration", _JOB, "Time limit: 30m, 4h, 1d12h. Short jobs find room sooner.",
        default_text="the admin's, or none", details="Also `1:30:00`, `2-00:00:00` or a number of seconds.",
        unit="seconds", minimum=1, maximum=10 * 366 * 86400, python_parameter="time", cli_option="--time",
        cli_commands=_ALL,
        request_attribute="time_limit_seconds", affects_start=True),
    JobField("name", "line", _JOB, "A name for the job.", default_text="that of the program",
        details="One line, up to 128 characters. Left out: `train.py` of `python train.py`; `script` of a script.",
        maximum=128, cli_commands=("run", "when", "session", "notebook"), affects_start=True),
    JobField("project", "line", _JOB, "The project whose share it uses: one of yours.",
        default_text="your default project", maximum=128, cli_commands=_ALL, affects_start=True),
    JobField("cpus", "count", _RESOURCES, "How many CPU cores.", "CPUs", default_text=_FAIR,
        details="A limit where cgroups are there.", minimum=1, maximum=100_000, cli_commands=_ALL,
        affects_start=True),
    JobField("memory", "memory", _RESOURCES, "Memory, a hard limit: 16G, 512M.", default_text=_FAIR,
        details="At least 16 MiB; a number alone is MiB.", unit="MiB", minimum=16, maximum=2**40,
        cli_commands=_ALL,
        request_attribute="memory_mib", affects_start=True),
    JobField("gpu_memory", "memory", _RESOURCES, "The least memory of each GPU: 40G.", "GPU memory",
        default_text="any", details="A number alone is MiB.", unit="MiB", minimum=16, maximum=2**40,
        cli_commands=("run", "when"), request_attribute="gpu_memory_mib", affects_start=True),
    JobField("tasks", "count", _RESOURCES,
        "How many tasks start together; GPUs, CPUs and memory are those of one task.", default=1,
        details="[More](#several-tasks-at-once).", minimum=1, maximum=10_000, cli_commands=("run", "when"),
        request_attribute="placement.tasks", affects_start=True),
    JobField("layout", "choice", _RESOURCES, "How its tasks are spread over nodes.", "Layout of tasks",
        default="pack", choices=(("pack", "on few nodes"), ("spread", "a node each")),
        cli_commands=("run", "when"), request_attribute="placement.layout", affects_start=True),
    JobField("template", "choice", _RESOURCES, "What starts the command in each task.", "Started by",
        default_text="none", details="[More](#templates-for-parallel-training).",
        choices=(("torchrun", "PyTorch, one process a GPU"), ("mpi", "mpirun"),
                 ("spark", "a Spark cluster of its tasks")),
        request_attribute="spec.template"),
    JobField("array", "array", _RESOURCES, "One job per index: 0-99; 0-99%8: 8 at once.", default_text="none",
        details="Also `1,3,5-9`."),
    JobField("labels", "labels", _RESOURCES, "Labels that its nodes must have: fast, disk=ssd.", "Labels of nodes",
        default=[], maximum=20, cli_option="--label", cli_commands=("run", "when"),
        request_attribute="placement.labels",
        affects_start=True),
    JobField("reservation", "line", _RESOURCES, "Wait for this reservation of its project, and run on its nodes.",
        default_text="none", maximum=128, request_attribute="placement.reservation"),
    JobField("exclusive", "flag", _RESOURCES, "No other job runs on its nodes.", default=False,
        cli_commands=("run", "when"), request_attribute="placement.exclusive", affects_start=True),
    JobField("priority_class", "line", _PRIORITY, "Its priority class.", "Class", default="normal",
        details="[More](#classes).", maximum=128, choices=_named(*PRIORITY_CLASSES), alias="class",
        cli_option="--class",
        cli_commands=("run", "when"), affects_start=True),
    JobField("priority", "count", _PRIORITY,
        "Higher starts first; below 0 lets others pass, above 0 is for managers.", default=0,
        details="That of a manager orders the jobs of the project; that of an admin counts everywhere.",
        minimum=-1000, maximum=1000, affects_start=True),
    JobField("preemptible", "flag", _PRIORITY, "May be stopped and queued again for jobs of a higher class.",
        default=False, details="It should save its work now and then ([more](#checkpoints-and-preemption)).",
        affects_start=True),
    JobField("overtime", "flag", _PRIORITY, "May exceed its time limit while no other job needs the resources.",
        default=False, details="[More](#overtime).", affects_start=True),
    JobField("held", "flag", _PRIORITY, "Do not start it before it is released: helio release.", "Hold",
        default=False, cli_option="--hold"),
    JobField("max_retries", "count", _RETRIES, "How many times to try again.", "Retries", default=0,
        details="After the ends that `retry_on` names ([more](#try-again)).", minimum=0, maximum=100),
    JobField("retry_on", "causes", _RETRIES,
        "Ends to try again after: lost, preempted, timed_out, out_of_memory, exit, exit:75.", "Retry after",
        default_text="lost, preempted", details="`exit` is any code but 0.", request_attribute="retry.on"),
    JobField("retry_delay", "duration", _RETRIES,
        "How long to wait before the first retry: 30s; doubles each time, up to 1h.", default=0, default_text="0s",
        unit="seconds", minimum=0, maximum=7 * 86400, request_attribute="retry.delay_seconds"),
    JobField("notify", "triggers", _RETRIES, "Notify me when it: started, ended, failed, late, ends_soon.",
        default=(), details="[More](#be-told)."),
    JobField("after", "parents", _DEPENDENCIES, "Start when these have completed: 12,13 or array:5.",
        "Start after", default=(),
        details="Also a list, or jobs of the same file by name ([more](#one-after-another)). If one ends "
                "otherwise, this job is cancelled.",
        alias="after_ok", request_attribute=None, affects_start=True),
    JobField("begin", "begin", _DEPENDENCIES, "Do not start before: 2026-12-01T08:00, or +2h.", "Not before",
        default_text="at once",
        details="A time without a zone is UTC for the API and in the form, that of your machine in files and "
                "for `--begin`.",
        form_help="2026-12-01T08:00 in UTC, or +2h.",
        affects_start=True),
    JobField("after_any", "parents", _DEPENDENCIES, "Start when these are over, however they ended.",
        "Start when these are over", default=(), request_attribute=None, affects_start=True),
    JobField("after_failed", "parents", _DEPENDENCIES, "Start when these are over and have not completed.",
        "Start if these fail", default=(), details="If one completes, this job is cancelled.",
        request_attribute=None),
    JobField("after_each", "parents", _DEPENDENCIES,
        "Of an array: each element starts after that of the same index of array:5.", "Element by element after",
        default=(), request_attribute=None),
    JobField("workdir", "folder", _SOFTWARE, "Where it runs: an absolute path on the node.", "Working directory",
        default_text="a fresh private folder",
        details="In files and on the command line also relative to where you are, and left out there, where you "
                "are, if the server is on this machine.",
        maximum=4095, cli_help="Where it runs; here, on the server's machine.",
        cli_commands=("run", "session", "notebook", "service"), request_attribute="spec.workdir"),
    JobField("upload", "upload", _SOFTWARE,
        "Code that becomes its working directory: the id of an upload of yours.", "Uploaded code",
        default_text="none",
        details="In files, in Python and on the command line a folder, which is sent without what .gitignore "
                "and .heliostatignore name ([more](#code-from-your-laptop)).",
        cli_help="Send this folder and run in a copy of it.", cli_commands=("run", "notebook"),
        request_attribute="spec.upload"),
    JobField("script", "script", _SOFTWARE, "Text of a script to run; the command then holds its arguments.",
        default_text="none", example="#!/bin/bash", details="It begins with its `#!`; up to 1 MiB.", maximum=2**20,
        cli_help="A script file to run (- for standard input).", request_attribute="spec.script"),
    JobField("environment", "software", _SOFTWARE,
        "The packages it runs with: files to build an environment from, or the digest of one of yours.",
        "Packages", default_text="the node's", example="torch==2.4.1",
        details="In files a file or its text, `image:NAME` or `@DIGEST` ([more](#its-own-software)).",
        form_help="Of Python, one a line, as in requirements.txt; or the digest of an environment of yours.",
        cli_option="--env", cli_commands=()),
    JobField("env", "variables", _SOFTWARE, "Environment variables: NAME=value.", "Environment variables",
        default={}, example="WANDB_MODE=offline", details="Added to the job's own; up to 512 KiB in all.",
        form_help='NAME=value, one a line; "…" with \\n for several lines.',
        cli_help="K=V, or K to copy yours; or its packages: requirements.txt, image:NAME, @DIGEST.",
        cli_commands=("run", "session", "notebook", "service"), request_attribute="spec.env"),
    JobField("record", "code", _SOFTWARE, "The code it is submitted with, as git tells it.",
        default_text="what git tells of the folder",
        details="`commit`, `branch`, `remote`, `diff`, `untracked`… ([more](#repeat-and-compare)); of `jobs:` "
                "in one file, noted once for all. In Python `record=False` leaves it out.",
        cli_commands=(), request_attribute=None),
    JobField("image", "line", _CONTAINER, "The image of the container it runs in: python:3.11.",
        default_text="none: the node's own software",
        details="[More](#in-a-container); or [one of your own](#images-of-your-own).", maximum=500,
        cli_commands=("run", "service", "schedule"), request_attribute="spec.image"),
    JobField("runtime", "choice", _CONTAINER, "How it is isolated.", "Isolation",
        default_text="the admin's, with an image; else process",
        choices=(("process", "not at all"), ("bubblewrap", "no image, only files it needs"),
                 *_named("podman", "apptainer", "docker")),
        request_attribute="spec.runtime"),
    JobField("network", "choice", _CONTAINER, "What its container reaches.", default_text="the admin's",
        choices=(("host", "what the node reaches"), ("private", "the same, from an address of its own"),
                 ("none", "nothing")),
        request_attribute="spec.network"),
    JobField("mounts", "mounts", _CONTAINER, "What its container sees of the node: SRC:DST or SRC:DST:ro.",
        default=[], example="/data/scans:/scans:ro",
        form_help="What its container sees of the node, one a line: SRC:DST or SRC:DST:ro.",
        details="On the command line `SRC` alone is the same place inside.", maximum=50, cli_option="--mount",
        request_attribute="spec.mounts"),
    JobField("preempt_signal", "signal", _STOPPING, "The signal that tells it to save its work and end.",
        "Signal to save its work", default="TERM", choices=_named(*STOP_SIGNALS),
        request_attribute="spec.preempt_signal"),
    JobField("grace_seconds", "seconds", _STOPPING, "How long it has between the signal to end and KILL.", "Grace",
        default=10.0, default_text="10s", unit="seconds", minimum=0, maximum=3600, cli_option="--grace",
        cli_help="How long it has between the signal to end and KILL: 10s, 2m.",
        request_attribute="spec.grace_seconds"),
)
# fmt: on
FIELD_ALIASES = {field.alias: field.name for field in JOB_FIELDS if field.alias}
_KINDS = {field.name: field.kind for field in JOB_FIELDS}


def normalize_yaml_job(job: Mapping[Any, Any]) -> dict[str, Any]:
    """The fields of a job as text where they mean text: YAML reads `1` and `yes` as numbers and truths."""
    read = {str(name): value for name, value in job.items()}
    for name, value in read.items():
        kind = _KINDS.get(name)
        if kind == "variables" and isinstance(value, dict):
            read[name] = {str(variable): _text(one) for variable, one in value.items()}
        elif kind == "command" and isinstance(value, list):
            read[name] = [_text(word) for word in value]
        elif kind == "array" and isinstance(value, int):
            read[name] = str(value)
    return read


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value
