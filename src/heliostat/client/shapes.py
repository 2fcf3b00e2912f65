"""What the API answers and takes, for type checkers; at run time these are plain dictionaries."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from os import PathLike
from typing import Any, NamedTuple, NotRequired, TypedDict


class JobOptions(TypedDict, total=False):
    """What can be said about a job besides its command. Left out: the server's default."""

    script: str | PathLike[str] | None  # text of a script, or the path of one
    name: str | None
    project: str | None
    gpus: float | None  # how many, or a part of one: 0.5
    gpu_type: str | None
    gpu_memory: str | int | None  # the least of each GPU: "40G", or MiB
    cpus: int | None
    memory: str | int | None  # "16G", or MiB
    tasks: int | None  # parallel members; what is asked for is that of one
    layout: str | None  # pack, spread
    exclusive: bool | None
    labels: Sequence[str] | None  # of its nodes: "fast", "disk=ssd"
    reservation: str | None  # it runs inside that
    time: str | int | None  # "4h", "1d12h", or seconds
    workdir: str | PathLike[str] | None
    env: Mapping[str, str] | None
    priority: int | None
    priority_class: str | None  # scavenger, normal, interactive, urgent
    preemptible: bool | None
    preempt_signal: str | None  # TERM, USR1…
    overtime: bool | None
    held: bool | None
    max_retries: int | None
    retry_on: str | Sequence[str] | None  # what these are for: "lost,exit:75"
    retry_delay: str | int | None  # before the first: "30s"; then twice as long each time
    notify: str | Sequence[str] | None  # what to tell me of it: "ended,late"
    grace_seconds: float | None
    image: str | None  # of the container it runs in: "python:3.11"
    runtime: str | None  # process, bubblewrap, podman, apptainer, docker
    mounts: Sequence[str] | None  # what its container sees of the node: "/data:/data:ro"
    network: str | None  # host, private, none
    upload: str | PathLike[str] | None  # a folder to run in a copy of, or the id of an upload
    template: str | None  # torchrun, mpi, spark: what starts the command in each task
    record: bool | None  # False: do not note with which code it is submitted
    after: "Parents | None"  # start when these have completed
    after_any: "Parents | None"  # start when these are over, however they ended
    after_failed: "Parents | None"  # start when these are over and have not completed
    after_each: "Parents | None"  # of an array: each element after that of the same index
    begin: datetime | timedelta | str | None  # not before; "+2h" and timedeltas count from now
    environment: "str | PathLike[str] | Mapping[str, str] | None"  # a file, its text, "image:NAME", "@DIGEST"


Parents = Any
"""A job, its number, an array, "array:5", the name of a job of the same `submit_many`, or a list of such."""


class JobFields(JobOptions, total=False):
    """One job of `submit_many`."""

    command: str | Sequence[str] | None
    array: str | None  # "0-99%8"


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
    accounted: dict[str, Any] | None  # what it used in all, if the engine keeps accounts
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


class Accuracy(TypedDict):
    """How many of the last forecasts held the real start."""

    within: int
    of: int


class Option(TypedDict):
    """Another request and when it would start."""

    words: str
    change: dict[str, Any]
    starts_now: bool
    forecast: Forecast


class Why(TypedDict):
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
    accuracy: Accuracy
    what_if: NotRequired[list[Option]]


class Event(TypedDict):
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


class Status(TypedDict, total=False):
    version: str
    pid: int
    engine: str
    url: str
    home: str
    started_at: str
    user: str
    jobs: dict[str, int]
    forecasts: Accuracy


class LogChunk(NamedTuple):
    """A piece of a log, and the byte of that stream at which it starts."""

    stream: str  # stdout, stderr
    offset: int
    text: str


class LogEnd(NamedTuple):
    """How a followed job ended."""

    state: str
    exit_code: int | None


class LogPart(NamedTuple):
    """Bytes of a log; `size` is that of the whole stream when they were read."""

    data: bytes
    offset: int
    size: int


class PortData(TypedDict):
    job_id: int
    port: int
    url: str


class KeyData(TypedDict):
    url: str
    key: str
    expires_at: str
