"""Table of all job fields. The HTTP body, the options of `helio`, the web form, the command line that the form
shows, the Python client's types and tables in `docs/` are generated from it.

A new field is one entry here, its attribute in `JobRequest`, and the code that uses it.
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
    "gpus",  # a number of GPUs, or a fraction of one
    "memory",  # 16G, or MiB
    "duration",  # 4h, or seconds
    "seconds",  # a number; on the command line and in the form, a duration
    "flag",
    "array",  # 0-99%8
    "begin",  # a time, or +2h
    "labels",  # a list of node labels
    "causes",  # a list of end causes of an attempt
    "triggers",  # a list of notification triggers
    "parents",  # jobs to wait for
    "mounts",  # a list of SRC:DST
    "variables",  # environment variables
    "folder",  # an absolute path
    "upload",  # the id of an upload; on the command line and in Python, a folder
    "software",  # an environment
    "code",  # the git state of a folder
]
FieldChoices = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class JobField:
    name: str  # in bodies and job files
    kind: FieldKind
    group: str
    help: str  # one or two sentences
    label: str = ""  # in the form; default: its name
    default: Any = None  # None: the server decides
    default_text: str = ""  # describes the default where the value does not show it
    example: str = ""
    details: str = ""  # Markdown: more text for the documentation
    unit: str = ""  # of its number
    minimum: float | None = None
    maximum: float | None = None  # of text, in characters; of a list, in entries
    choices: FieldChoices = ()  # values with their meaning
    alias: str = ""  # another name in bodies and job files
    python_parameter: str = ""  # in the Python client; default: its name
    cli_option: str = ""  # on the command line; default: its name
    cli_help: str = ""  # where the option differs from the body
    form_help: str = ""  # where the form differs from the body
    cli_commands: tuple[str, ...] = ("run", "schedule")  # `helio` commands that have the option
    request_attribute: str | None = ""  # of JobRequest; default: its name; None: several fields form one attribute
    affects_start: bool = False  # changes when the job can start

    @property
    def title(self) -> str:
        return self.label or self.name.replace("_", " ").capitalize()

    @property
    def python_name(self) -> str:
        return self.python_parameter or self.name

    @property
    def cli_flags(self) -> tuple[str, ...]:
        """Names of its option; help texts show the first."""
        names = [self.cli_option or f"--{self.name}", *([f"--{self.alias}"] if self.alias else [])]
        return tuple(dict.fromkeys(name.replace("_", "-") for name in names))

    @property
    def request_path(self) -> str | None:
        """Path of its attribute in a JobRequest: `placement.tasks`."""
        return self.name if self.request_attribute == "" else self.request_attribute

    @property
    def help_with_choices(self) -> str:
        values = ", ".join(value for value, _ in self.choices)
        return f"{self.help} One of {values}." if values else self.help


def _named(*values: str) -> FieldChoices:
    return tuple((value, "") for value in values)


_ALL = ("run", "when", "session", "notebook", "service", "schedule")
_JOB, _RESOURCES, _PRIORITY = "Job", "Resources", "Priority"
_RETRIES, _DEPENDENCIES, _SOFTWARE = "Retries and notifications", "Dependencies", "Code and software"
_CONTAINER, _STOPPING = "Container", "Stopping"
_PROPORTIONAL = "a proportional share of the node"

# Each entry in as few lines as it needs.
# fmt: off
JOB_FIELDS = (
    JobField("command", "command", _JOB,
        "Command to run: a shell line, or a list of words that is run without a shell.", default=[],
        example="python train.py --epochs 10", details="With `script`: the list of its arguments.",
        form_help="As you would type it in a shell.",
        cli_commands=(), request_attribute="spec.command"),
    JobField("gpus", "gpus", _JOB, "Number of GPUs, or a fraction of one GPU: 0.5.", "GPUs", default=0,
        default_text="0",
        details="Reserved for this job ([fractions](#fractions-of-a-gpu)).", cli_commands=_ALL,
        affects_start=True),
    JobField("gpu_type", "line", _JOB, "GPU type, as shown by helio nodes: A100, RTX-3090, A100-1g.10gb.",
        "GPU type", default_text="any", maximum=128, affects_start=True,
        cli_commands=("run", "when", "session", "notebook", "schedule")),
    JobField("time_limit", "duration", _JOB, "Time limit: 30m, 4h, 1d12h. Short jobs often start sooner.",
        default_text="set by the admin, or none", details="Also `1:30:00`, `2-00:00:00` or a number of seconds.",
        unit="seconds", minimum=1, maximum=10 * 366 * 86400, python_parameter="time", alias="time",
        cli_option="--time", cli_commands=_ALL,
        request_attribute="time_limit_seconds", affects_start=True),
    JobField("name", "line", _JOB, "Name of the job.", default_text="the name of the program",
        details="One line, up to 128 characters. Default: `train.py` for `python train.py`, `script` for scripts.",
        maximum=128, cli_commands=("run", "when", "session", "notebook"), affects_start=True),
    JobField("project", "line", _JOB, "Project whose share the job uses; you must be a member.",
        default_text="your default project", maximum=128, cli_commands=_ALL, affects_start=True),
    JobField("cpus", "count", _RESOURCES, "Number of CPU cores.", "CPUs", default_text=_PROPORTIONAL,
        details="Enforced where cgroups are available.", minimum=1, maximum=100_000, cli_commands=_ALL,
        affects_start=True),
    JobField("memory", "memory", _RESOURCES, "Memory, a hard limit: 16G, 512M.", default_text=_PROPORTIONAL,
        details="At least 16 MiB; a number without a unit is MiB.", unit="MiB", minimum=16, maximum=2**40,
        cli_commands=_ALL,
        request_attribute="memory_mib", affects_start=True),
    JobField("gpu_memory", "memory", _RESOURCES, "Minimum memory of each GPU: 40G.", "GPU memory",
        default_text="any", details="A number without a unit is MiB.", unit="MiB", minimum=16, maximum=2**40,
        cli_commands=("run", "when", "schedule"), request_attribute="gpu_memory_mib", affects_start=True),
    JobField("tasks", "count", _RESOURCES, "Number of parallel tasks; other amounts are per task.", default=1,
        details="[More](#jobs-with-several-tasks).", minimum=1, maximum=10_000,
        cli_commands=("run", "when", "schedule"), request_attribute="placement.tasks", affects_start=True),
    JobField("layout", "choice", _RESOURCES, "Placement of the tasks on nodes.", "Task layout",
        default="pack", choices=(("pack", "few nodes"), ("spread", "one task per node")),
        cli_commands=("run", "when", "schedule"), request_attribute="placement.layout", affects_start=True),
    JobField("template", "choice", _RESOURCES, "Launcher that starts the command in each task.", "Launcher",
        default_text="none", details="[More](#templates-for-parallel-training).",
        choices=(("torchrun", "PyTorch, one process per GPU"), ("mpi", "mpirun"),
                 ("spark", "a Spark cluster of the tasks")),
        request_attribute="spec.template"),
    JobField("array", "array", _RESOURCES, "One job per index: 0-99; 0-99%8 runs at most 8 at once.",
        default_text="none", details="Also `1,3,5-9`."),
    JobField("labels", "labels", _RESOURCES, "Labels that the nodes must have: fast, disk=ssd.", "Node labels",
        default=[], maximum=20, cli_option="--label", cli_commands=("run", "when", "schedule"),
        request_attribute="placement.labels",
        affects_start=True),
    JobField("reservation", "line", _RESOURCES, "Run only during this reservation of the project, on its nodes.",
        default_text="none", maximum=128, request_attribute="placement.reservation"),
    JobField("exclusive", "flag", _RESOURCES, "No other job runs on the same nodes.", default=False,
        cli_commands=("run", "when", "schedule"), request_attribute="placement.exclusive", affects_start=True),
    JobField("priority_class", "line", _PRIORITY, "Priority class.", "Class", default="normal",
        details="[More](#classes).", maximum=128, choices=_named(*PRIORITY_CLASSES), alias="class",
        cli_option="--class",
        cli_commands=("run", "when", "schedule"), affects_start=True),
    JobField("priority", "count", _PRIORITY,
        "Jobs with a higher number start first. Below 0: after other jobs. Above 0: managers only.", default=0,
        details="A manager's number orders the jobs of the project; an admin's counts in the whole cluster.",
        minimum=-1000, maximum=1000, affects_start=True),
    JobField("preemptible", "flag", _PRIORITY,
        "May be stopped and queued again when a job of a higher class needs the resources.",
        default=False, details="It should save checkpoints ([more](#checkpoints-and-preemption)).",
        affects_start=True),
    JobField("overtime", "flag", _PRIORITY, "May exceed its time limit while no other job needs the resources.",
        default=False, details="[More](#overtime).",
        cli_help="May exceed --time while no other job needs the resources.", affects_start=True),
    JobField("held", "flag", _PRIORITY, "Do not start the job until it is released (helio release).", "Hold",
        default=False, cli_option="--hold"),
    JobField("max_retries", "count", _RETRIES, "Maximum number of retries.", "Retries", default=0,
        details="After the outcomes listed in `retry_on` ([more](#retries)).", minimum=0, maximum=100),
    JobField("retry_on", "causes", _RETRIES,
        "Outcomes after which to retry: lost, preempted, timed_out, out_of_memory, exit, exit:75.", "Retry after",
        default_text="lost, preempted", details="`exit` is any exit code except 0.",
        request_attribute="retry.on"),
    JobField("retry_delay", "duration", _RETRIES,
        "Delay before the first retry: 30s. It doubles with each retry, up to 1h.", default=0, default_text="0s",
        unit="seconds", minimum=0, maximum=7 * 86400, request_attribute="retry.delay_seconds"),
    JobField("notify", "triggers", _RETRIES, "Notify me on these events: started, ended, failed, late, ends_soon.",
        default=(), details="[More](#notifications)."),
    JobField("after", "parents", _DEPENDENCIES, "Start after these jobs have completed: 12,13 or array:5.",
        "Start after", default=(),
        details="Also a list, or names of jobs in the same file ([more](#dependencies)). If one of them ends "
                "in another way, this job is cancelled.",
        alias="after_ok", cli_commands=("run",), request_attribute=None, affects_start=True),
    JobField("begin", "begin", _DEPENDENCIES, "Earliest start: 2026-12-01T08:00, or +2h.", "Earliest start",
        default_text="immediately",
        details="A time without a zone is UTC in the API and in the form, and local time in files and for "
                "`--begin`.",
        form_help="2026-12-01T08:00 in UTC, or +2h.",
        affects_start=True),
    JobField("after_any", "parents", _DEPENDENCIES, "Start after these jobs have ended, with any result.",
        "Start after these have ended", default=(), cli_commands=("run",), request_attribute=None,
        affects_start=True),
    JobField("after_failed", "parents", _DEPENDENCIES, "Start after these jobs have ended without completing.",
        "Start if these fail", default=(), details="If one completes, this job is cancelled.",
        cli_commands=("run",), request_attribute=None),
    JobField("after_each", "parents", _DEPENDENCIES,
        "For arrays: each element starts after the element of array:5 with the same index.",
        "Start each element after", default=(), cli_commands=("run",), request_attribute=None),
    JobField("workdir", "folder", _SOFTWARE, "Working directory: an absolute path on the node.",
        "Working directory", default_text="a new private folder",
        details="In files and on the command line also relative to the current directory, which is the default "
                "there if the server is on this machine.",
        maximum=4095, cli_help="Working directory. Default: the current one, if the server is on this machine.",
        cli_commands=("run", "session", "notebook", "service", "schedule"), request_attribute="spec.workdir"),
    JobField("upload", "upload", _SOFTWARE,
        "Uploaded code that becomes the working directory: the id of one of your uploads.", "Uploaded code",
        default_text="none",
        details="In files, in Python and on the command line: a folder. It is uploaded without the files listed "
                "in .gitignore and .heliostatignore ([more](#code-from-your-laptop)).",
        cli_help="Upload this folder and run in a copy of it.", cli_commands=("run", "notebook", "schedule"),
        request_attribute="spec.upload"),
    JobField("script", "script", _SOFTWARE, "Text of a script to run; the command then holds its arguments.",
        default_text="none", example="#!/bin/bash", details="It starts with `#!`; up to 1 MiB.", maximum=2**20,
        cli_help="Script file to run (- for standard input).", request_attribute="spec.script"),
    JobField("environment", "software", _SOFTWARE,
        "Software packages: files to build an environment from, or the digest of one of your environments.",
        "Packages", default_text="the node's software", example="torch==2.4.1",
        details="In files: a file name or its text, `image:NAME` or `@DIGEST` ([more](#environments)).",
        form_help="Python packages, one per line, as in requirements.txt; or the digest of an environment.",
        cli_option="--env", cli_commands=()),
    JobField("env", "variables", _SOFTWARE, "Environment variables: NAME=value.", "Environment variables",
        default={}, example="WANDB_MODE=offline",
        details="Added to the variables that every job gets; up to 512 KiB in total.",
        form_help='NAME=value, one per line; "…" with \\n for several lines.',
        cli_help="Environment variable: K=V, or K to copy your own value. Or packages: requirements.txt, "
                 "image:NAME, @DIGEST.",
        cli_commands=("run", "session", "notebook", "service", "schedule"), request_attribute="spec.env"),
    JobField("record", "code", _SOFTWARE, "Version of the code at submission, read from git.",
        default_text="read from git in the folder",
        details="`commit`, `branch`, `remote`, `diff`, `untracked`… ([more](#repeat-and-compare)); jobs under "
                "`jobs:` in one file share one record. In Python `record=False` omits it.",
        cli_commands=(), request_attribute=None),
    JobField("image", "line", _CONTAINER, "Container image: python:3.11.",
        default_text="none: the node's software",
        details="[More](#containers); or [build your own](#images-of-your-own).", maximum=500,
        cli_commands=("run", "service", "schedule"), request_attribute="spec.image"),
    JobField("runtime", "choice", _CONTAINER, "Isolation of the job.", "Isolation",
        default_text="process; with an image, set by the admin",
        choices=(("process", "no isolation"), ("bubblewrap", "no image, only the files it needs"),
                 *_named("podman", "apptainer", "docker")),
        request_attribute="spec.runtime"),
    JobField("network", "choice", _CONTAINER, "Network access of the container.", default_text="set by the admin",
        choices=(("host", "the node's network"), ("private", "the same, from its own address"),
                 ("none", "no network")),
        request_attribute="spec.network"),
    JobField("mounts", "mounts", _CONTAINER,
        "Paths of the node that the container can access: SRC:DST or SRC:DST:ro.",
        default=[], example="/data/scans:/scans:ro",
        form_help="Paths of the node that the container can access, one per line: SRC:DST or SRC:DST:ro.",
        details="On the command line, `SRC` alone is mounted at the same path.", maximum=50, cli_option="--mount",
        request_attribute="spec.mounts"),
    JobField("preempt_signal", "signal", _STOPPING, "Signal sent before preemption.",
        "Signal before preemption", default="TERM", details="The job should save its work and exit.",
        choices=_named(*STOP_SIGNALS), request_attribute="spec.preempt_signal"),
    JobField("grace_seconds", "seconds", _STOPPING, "Time between the stop signal and KILL.", "Grace period",
        default=10.0, default_text="10s", unit="seconds", minimum=0, maximum=3600, cli_option="--grace",
        cli_help="Time between the stop signal and KILL: 10s, 2m.",
        request_attribute="spec.grace_seconds"),
)
# fmt: on
FIELD_ALIASES = {field.alias: field.name for field in JOB_FIELDS if field.alias}
_KINDS = {field.name: field.kind for field in JOB_FIELDS}


def normalize_yaml_job(job: Mapping[Any, Any]) -> dict[str, Any]:
    """Convert values to text where a field expects text: YAML reads `1` as a number and `yes` as a boolean."""
    fields = {str(name): value for name, value in job.items()}
    for name, value in fields.items():
        kind = _KINDS.get(name)
        if kind == "variables" and isinstance(value, dict):
            fields[name] = {str(variable): _text(text) for variable, text in value.items()}
        elif kind == "command" and isinstance(value, list):
            fields[name] = [_text(word) for word in value]
        elif kind == "array" and isinstance(value, int):
            fields[name] = str(value)
    return fields


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value
