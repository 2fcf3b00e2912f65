"""What the API answers and takes, for type checkers; at run time these are plain dictionaries."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from os import PathLike
from typing import Any, NamedTuple, NotRequired, TypedDict

ParentJobs = Any
"""A job, its number, an array, "array:5", the name of a job of the same `submit_many`, or a list of such."""

# scripts/generate_job_fields.py makes these from the table of job fields.


class JobOptions(TypedDict, total=False):
    """What can be said about a job besides its command. Left out: the server's default."""

    gpus: float | None  # How many GPUs, or a part of one: 0.5.
    gpu_type: str | None  # The type of GPU, as helio nodes shows it: A100, RTX-3090.
    time: str | int | None  # Time limit: 30m, 4h, 1d12h. Short jobs find room sooner.
    name: str | None  # A name for the job.
    project: str | None  # The project whose share it uses: one of yours.
    cpus: int | None  # How many CPU cores.
    memory: str | int | None  # Memory, a hard limit: 16G, 512M.
    gpu_memory: str | int | None  # The least memory of each GPU: 40G.
    tasks: int | None  # How many tasks start together; GPUs, CPUs and memory are those of one task.
    layout: str | None  # How its tasks are spread over nodes. One of pack, spread.
    template: str | None  # What starts the command in each task. One of torchrun, mpi, spark.
    labels: Sequence[str] | None  # Labels that its nodes must have: fast, disk=ssd.
    reservation: str | None  # Wait for this reservation of its project, and run on its nodes.
    exclusive: bool | None  # No other job runs on its nodes.
    priority_class: str | None  # Its priority class. One of scavenger, normal, interactive, urgent.
    priority: int | None  # Higher starts first; below 0 lets others pass, above 0 is for managers.
    preemptible: bool | None  # May be stopped and queued again for jobs of a higher class.
    overtime: bool | None  # May exceed its time limit while no other job needs the resources.
    held: bool | None  # Do not start it before it is released: helio release.
    max_retries: int | None  # How many times to try again.
    # Ends to try again after: lost, preempted, timed_out, out_of_memory, exit, exit:75.
    retry_on: str | Sequence[str] | None
    retry_delay: str | int | None  # How long to wait before the first retry: 30s; doubles each time, up to 1h.
    notify: str | Sequence[str] | None  # Notify me when it: started, ended, failed, late, ends_soon.
    after: ParentJobs | None  # Start when these have completed: 12,13 or array:5.
    begin: datetime | timedelta | str | None  # Do not start before: 2026-12-01T08:00, or +2h.
    after_any: ParentJobs | None  # Start when these are over, however they ended.
    after_failed: ParentJobs | None  # Start when these are over and have not completed.
    after_each: ParentJobs | None  # Of an array: each element starts after that of the same index of array:5.
    workdir: str | PathLike[str] | None  # Where it runs: an absolute path on the node.
    upload: str | PathLike[str] | None  # Code that becomes its working directory: the id of an upload of yours.
    script: str | PathLike[str] | None  # Text of a script to run; the command then holds its arguments.
    # The packages it runs with: files to build an environment from, or the digest of one of yours.
    environment: str | PathLike[str] | Mapping[str, str] | None
    env: Mapping[str, str] | None  # Environment variables: NAME=value.
    record: bool | None  # The code it is submitted with, as git tells it.
    image: str | None  # The image of the container it runs in: python:3.11.
    runtime: str | None  # How it is isolated. One of process, bubblewrap, podman, apptainer, docker.
    network: str | None  # What its container reaches. One of host, private, none.
    mounts: Sequence[str] | None  # What its container sees of the node: SRC:DST or SRC:DST:ro.
    # The signal that tells it to save its work and end. One of TERM, INT, HUP, QUIT, USR1, USR2.
    preempt_signal: str | None
    grace_seconds: float | None  # How long it has between the signal to end and KILL.


class JobFields(JobOptions, total=False):
    """One job of `submit_many`."""

    command: str | Sequence[str] | None  # What to run: a shell line, or a list of words that no shell touches.
    array: str | None  # One job per index: 0-99; 0-99%8: 8 at once.


# End of what is made.


class JobFilters(TypedDict, total=False):
    state: str | Sequence[str] | None
    user: str | None
    project: str | None
    name: str | None
    array_id: int | None
    node: str | None
    submitted_after: datetime | str | None
    submitted_before: datetime | str | None
    unfinished: bool | None


class JobData(TypedDict, total=False):
    id: int
    kind: str
    name: str | None
    state: str
    user: str
    project: str
    cpus: int
    memory_mib: int
    gpus: float
    gpu_type: str | None
    gpu_memory_mib: int | None
    tasks: int
    layout: str
    exclusive: bool
    labels: list[str]
    reservation: str | None
    time_limit_seconds: int | None
    overtime: bool
    priority: int
    priority_everywhere: bool  # an admin's; else it counts only within the project
    priority_class: str
    preemptible: bool
    preemptions: int
    max_retries: int
    retries: int
    array_id: int | None
    array_index: int | None
    array_limit: int | None
    attempt: int
    node: str | None
    devices: list[str]
    places: list[dict[str, Any]]
    submitted_at: str
    started_at: str | None
    checkpointed_at: str | None
    ended_at: str | None
    exit_code: int | None
    reason: str | None
    forecast: "Forecast | None"
    stop_requested: str | None
    source: str | None  # where it ran, if it was brought in from elsewhere: slurm
    source_number: str | None  # its number there
    schedule: dict[str, Any] | None  # that submitted it: id, name, due_at
    part: dict[str, Any] | None  # what it is of a workflow or sweep: of, number, key
    accounting_usage: dict[str, Any] | None  # what it used in all, if the engine keeps accounts
    spec: dict[str, Any]
    attempts: list[dict[str, Any]]
    request: dict[str, Any]
    parents_left: int  # how many it waits for are not over
    begin_at: str | None
    environment: str | None  # the digest of the one it runs in
    retry_on: list[str]
    retry_delay_seconds: int
    notify: list[str]
    parents: list[dict[str, Any]]
    parent_count: int
    children: list[dict[str, Any]]
    child_count: int


class Forecast(TypedDict):
    """When a waiting job will start, if nobody new comes."""

    earliest_at: str
    likely_at: str
    latest_at: str
    confidence: float | None  # the part of the trial runs that lies in between
    runs: int
    limits_at: str | None  # if every job takes all its time
    source: str  # trial runs, or whose plan it is


class ForecastAccuracy(TypedDict):
    """How many of the last forecasts held the real start."""

    within: int
    of: int


class RequestVariation(TypedDict):
    """Another request and when it would start."""

    words: str
    change: dict[str, Any]
    starts_now: bool
    forecast: Forecast


class JobExplanation(TypedDict):
    """Null is what does not apply: to a job that does not wait, most."""

    job_id: int
    state: str
    sentence: str
    blocked_by: str | None
    position: int | None
    pending: int | None
    ahead: int | None
    ahead_projects: int | None
    first_ahead: list[dict[str, Any]]
    share_used: float | None
    starts_by: str | None
    not_before: str | None  # when it can start at the earliest, if its month's quota is used up
    forecast: Forecast | None
    accuracy: ForecastAccuracy
    what_if: NotRequired[list[RequestVariation]]


class JobEventData(TypedDict):
    id: int
    job_id: int
    attempt: int
    at: str
    kind: str
    state: str
    detail: str | None


class Finding(TypedDict):
    check: str
    level: str  # ok, warning, problem
    message: str
    hint: str | None


class ServerStatus(TypedDict, total=False):
    version: str
    pid: int
    engine: str
    url: str
    home: str
    started_at: str
    user: str
    jobs: dict[str, int]
    forecasts: ForecastAccuracy


class LogChunk(NamedTuple):
    """A piece of a log, and the byte of that stream at which it starts."""

    stream: str  # stdout, stderr
    offset: int
    text: str


class LogEnd(NamedTuple):
    """How a followed job ended."""

    state: str
    exit_code: int | None


class LogSlice(NamedTuple):
    """Bytes of a log; `size` is that of the whole stream when they were read."""

    data: bytes
    offset: int
    size: int


class PortData(TypedDict):
    job_id: int
    port: int
    url: str


class AccessKeyData(TypedDict):
    url: str
    key: str
    expires_at: str
