"""Every setting of `cluster.toml`: a record for each section, with help, limits and default of each field."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliostat.config.home import DEFAULT_PORT
from heliostat.config.setting_rules import setting

_SIZE = {"pattern": r"[1-9]\d{0,8}(\.\d{1,3})?[MGT]", "advice": 'Write a size: "500M", "2G".'}
_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?"
_PROXY_URL = r"https?://((\*\.)?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*|\[[0-9A-Fa-f:]+\])(:\d{1,5})?/?"
_TINY = 0.001


def _is_zone(name: str) -> bool:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _zone_of_this_machine() -> str:
    """UTC, if it cannot be told."""
    linked = os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]
    named = (os.environ.get("TZ", "").removeprefix(":"), linked)
    return next((name for name in named if name and _is_zone(name)), "UTC")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The server, its addresses and its engine."""

    host: str = setting(
        "127.0.0.1",
        'address to listen on; `"0.0.0.0"` or `"::"` lets other machines in',
        see="admins.md#over-the-network",
    )
    port: int = setting(DEFAULT_PORT, "TCP port; 0 takes any free one", least=0, most=65535)
    public_url: str | None = setting(
        None,
        "address that browsers use when a reverse proxy stands before the server; makes cookies secure",
        example='"https://gpu.example.org"',
    )
    proxy_port: int | None = setting(
        None,
        "port on which the proxy to sessions, services and ports of jobs listens, on the same `host`. "
        "Not set: the port after `port` (8471), or any if that is taken",
        least=0,
        most=65535,
        see="admins.md#the-proxy",
    )
    proxy_url: str | None = setting(
        None,
        "address that browsers use for the proxy; with `*`, each session and service has a host name of its own",
        pattern=_PROXY_URL,
        example='"https://*.sessions.example.org"',
        advice='Write "https://sessions.example.org", or "https://*.sessions.example.org" for a name each.',
    )
    max_request_bytes: int = setting(64 * 2**20, "largest request body (64 MiB)", least=1024, most=2**40)
    time_zone: str | None = setting(
        None,
        "zone in which weekly reservations, and schedules that name none, keep their time of day when clocks "
        "change. Existing reservations keep theirs. Not set: the zone of the server",
        fits=_is_zone,
        example='"Europe/Berlin"',
        advice='Write one of /usr/share/zoneinfo: "Europe/Berlin"; the package tzdata brings them.',
    )
    engine: str = setting(
        "local",
        "where jobs run; `simulated` is for tries",
        choices=("local", "simulated", "slurm"),
        see="admins.md#on-slurm",
    )
    node_name: str | None = setting(
        None,
        "name of this machine as a node. Changing it forgets that it was drained. "
        "Not set: the host name up to its first dot",
    )
    simulate_gpus: str | None = setting(
        None, "made-up GPUs on this machine instead of real ones", example='"2xA100,2xT4"'
    )
    simulated_nodes: str = setting(
        "4x8xA100",
        "nodes of the simulated engine: nodes x GPUs x type, separated by commas; `3xcpu` for nodes without GPUs",
    )
    simulated_speed: float = setting(1.0, "how much faster than real time simulated jobs run", least=_TINY)

    @property
    def effective_time_zone(self) -> str:
        """The name of the cluster's time zone."""
        return self.time_zone or _zone_of_this_machine()


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Limits of jobs and schedules, fair share, priority and preemption."""

    default_time_limit_seconds: int | None = setting(
        None, "time limit of jobs that name none. Not set: no limit", least=1, most=1e9, example="86400"
    )
    max_time_limit_seconds: int = setting(
        90 * 24 * 3600, "longest time limit that may be asked for (90 days)", least=1, most=1e9
    )
    max_grace_seconds: float = setting(
        300.0,
        "longest time that a job may take to end once it is told to; past every limit, while other jobs wait",
        least=0,
    )
    max_jobs_per_user: int = setting(50_000, "unfinished jobs that one person may have", least=0, most=1e9)
    pids_limit: int = setting(
        4096, "processes and threads that one job may have, where there are cgroups", least=1, most=2**22
    )
    min_schedule_seconds: int = setting(
        10, "shortest time between two jobs of a schedule", least=1, see="researchers.md#again-and-again"
    )
    max_schedules_per_user: int = setting(1000, "schedules that one person may have", least=0)
    half_life_days: float = setting(7.0, "fair share: after so many days past usage counts half", least=_TINY)
    share_weight: float = setting(
        2.0, "points that having used just one share costs; a point is worth waiting twice as long", least=0
    )
    size_weight: float = setting(1.0, "points that asking for twice as many GPU-hours costs", least=0)
    assumed_limit_hours: float = setting(
        24.0, "how long jobs without a time limit are assumed to run", least=_TINY
    )
    backfill_reservations: int = setting(
        1, "for how many blocked jobs resources are reserved while smaller jobs backfill", least=1
    )
    preemption: bool = setting(True, "whether preemptible jobs may be preempted by jobs of a higher class")
    preemption_protection_seconds: float = setting(
        900.0,
        "how long a preempted job may run before it is preempted again; twice as long each time",
        least=1,
        see="queue.md#who-makes-room",
    )
    gpu_charges: Mapping[str, float] = setting(
        {},
        "what an hour of a GPU costs the share, by GPU type; 1 for types not named",
        least=_TINY,
        example="{ a100 = 2.0, t4 = 0.5 }",
    )
    cpu_charge: float = setting(0.02, "what an hour of a cpu costs the share", least=0)
    memory_gib_charge: float = setting(0.002, "what an hour of a GiB of memory costs the share", least=0)
    urgent_gpu_hours_per_month: int = setting(
        100, "GPU-hours of the class `urgent` that each project has a month", least=0
    )
    interactive_points: float = setting(4.0, "points of jobs of the class `interactive`", least=0)


_RUNTIMES = ("process", "bubblewrap", "podman", "apptainer", "docker")


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """How jobs are isolated, which images they may use, and how long fetched images are kept."""

    runtimes: tuple[str, ...] = setting(
        ("process", "bubblewrap", "podman", "apptainer"),
        "how jobs may be isolated. `docker` too, if you must",
        choices=_RUNTIMES,
        see="admins.md#containers",
    )
    default_runtime: str = setting(
        "podman", "runtime of jobs with an image that name none", choices=("podman", "apptainer", "docker")
    )
    required: bool = setting(False, "no job runs as a plain process")
    required_for: tuple[str, ...] = setting(
        (), "no job of these projects runs as a plain process", example='["patients"]'
    )
    allowed_registries: tuple[str, ...] = setting(
        (),
        "registries that images may come from. Empty: all",
        example='["registry.example.org/lab", "docker.io/library"]',
    )
    require_digest: bool = setting(
        False, "images must be named `NAME@sha256:…`, not by a tag, whose meaning may change"
    )
    allowed_digests: tuple[str, ...] = setting(
        (),
        "digests of the only images that may run; they are named `NAME@sha256:…`, and no image that people build "
        "or have in a file is one of them. Empty: all may run",
        pattern="sha256:[0-9a-f]{64}",
        example='["sha256:…"]',
        advice='Write digests: "sha256:…", as podman image inspect tells them.',
    )
    mount_paths: tuple[str, ...] = setting(
        ("{home}",),
        "paths of a node that containers may see, with all below them; may hold `{home}`, `{user}`, `{project}`",
        pattern=r"(/|\{home\})([^{}:]|\{(home|user|project)\})*(:ro)?",
        example='["{home}", "/srv/projects/{project}", "/srv/datasets:ro"]',
        advice='Write "{home}", "/srv/{project}", "/data:ro": absolute paths, with {home}, {user} and {project}.',
    )
    networks: tuple[str, ...] = setting(
        ("host", "private", "none"),
        "networks that containers may have; the first is the default, `none` is always allowed",
        choices=("host", "private", "none"),
    )
    read_only_root: bool = setting(False, "containers write to their mounts and `/tmp` only")
    oci_runtime: str | None = setting(
        None, "what podman and docker start containers with. Not set: crun or runc", example='"kata"'
    )
    oci_runtimes: Mapping[str, str] = setting(
        {},
        'the same for single projects; `"kata"` gives each of their containers a virtual machine',
        example='{ patients = "kata" }',
    )
    scratch: str = setting(
        "/var/tmp",  # noqa: S108 - that is its default
        "on nodes of Slurm: a folder on a local disk, writable for everybody like `/tmp`, in which containers "
        "keep images and what they write",
        pattern=r"/[A-Za-z0-9._/-]{1,20}",
        advice="Write a folder on a local disk of each node, of at most 20 characters, writable for everybody.",
    )
    keep_days: int = setting(
        30, "days that a fetched image is kept after its last use; 0: for ever. One in use is always kept", least=0
    )
    max_size: str = setting(
        "200G",
        'limit on the images fetched for one person on one node; the least recently used go first. `"0"`: none',
        pattern="0|[1-9][0-9]{0,6}[MGT]",
        advice='Write a size: "200G"; "0" for no limit.',
    )


@dataclass(frozen=True, slots=True)
class EnvironmentSettings:
    """The software environments that are built for jobs."""

    builder: str = setting(
        "heliostat-build",
        "Unix user that builds the environments everybody shares; without it, each person's are their own",
        pattern="[a-z_][a-z0-9_-]{0,31}",
        advice="Write the name of a Unix user.",
        see="admins.md#environments",
    )
    keep_days: int = setting(
        90,
        "days that an environment is kept after its last use; 0: for ever. One that a job needs is always kept",
        least=0,
    )
    max_size: str | None = setting(
        None,
        "limit on all environments together; the least recently used go first",
        pattern="[1-9][0-9]{0,6}[MGT]",
        example='"500G"',
        advice='Write a size: "500G".',
    )
    uv_variables: Mapping[str, str] = setting(
        {},
        "variables for uv, which installs packages: index, proxies, certificates. Everybody can read them: "
        "no passwords",
        keys="UV_[A-Z0-9_]+|SSL_CERT_(FILE|DIR)|(HTTPS?|ALL|NO)_PROXY",
        pattern=".*",
        fits=lambda table: all(value.isprintable() for value in table.values()),
        example='{ UV_DEFAULT_INDEX = "https://pypi.example.org/simple" }',
    )


DEFAULT_JUPYTER_REQUIREMENTS = ("jupyterlab>=4.4,<5", "ipykernel>=6.29,<8", "papermill>=2.6,<3")
"""What notebooks run with where people bring nothing of their own."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Interactive sessions and batch notebooks."""

    jupyter_command: str | None = setting(
        None,
        "where JupyterLab is, for sessions that have none on their `PATH`; every user must be able to run it. "
        "Batch notebooks need papermill and nbconvert beside it",
        example='"/opt/jupyter/bin/jupyter-lab"',
    )
    jupyter_requirements: tuple[str, ...] = setting(
        DEFAULT_JUPYTER_REQUIREMENTS,
        "what is built for sessions and batch notebooks where there is neither: requirements, pinned as you like. "
        "`[]` turns it off",
        see="admins.md#environments",
    )
    idle_after: str = setting(
        "4h",
        "a JupyterLab that is idle for so long is ended, after a warning a quarter of that time (at most 15 "
        'minutes) before; `"never"`',
        pattern="never|[1-9][0-9]{0,6}[smhd]",
        advice='Write how long: "4h", "30m"; or "never".',
    )
    default_hours: float = setting(8.0, "time limit of sessions that name none", least=0.01)


@dataclass(frozen=True, slots=True)
class NotificationSettings:
    """Mails, chat messages and webhooks about jobs."""

    hosts: tuple[str, ...] = setting(
        (),
        'hosts that messages may be posted to; `"*"` for all. A port other than 80 and 443 must be named',
        pattern=rf"\*|(\*\.)?{_HOST}(:\d{{1,5}})?",
        example='["hooks.slack.com", "*.example.org", "chat.lab:8065"]',
        see="admins.md#notifications",
    )
    networks: tuple[str, ...] = setting(
        (),
        "private networks in which these hosts may be; all other private addresses are refused",
        pattern=r"[0-9A-Fa-f:.]{2,45}/\d{1,3}",
        example='["10.1.0.0/16", "fd00::/8"]',
    )
    mail_domains: tuple[str, ...] = setting(
        (), "domains that may be mailed to", pattern=_HOST, example='["example.org"]'
    )
    pause_seconds: int = setting(
        60,
        "pause between two mails or chat messages of one notification; what happens meanwhile is sent together",
        least=0,
    )
    late_seconds: int = setting(3600, "a job is late if it will start so much later than first forecast", least=1)
    max_per_user: int = setting(20, "notifications that one person may set up", least=0)
    smtp_host: str | None = setting(None, "mail server; without it no mail is sent", example='"smtp.example.org"')
    smtp_port: int = setting(587, "port of the mail server", least=1, most=65535)
    smtp_tls: str = setting(
        "starttls",
        "`tls` is for port 465, `none` for a mail server on this machine; certificates are checked against those "
        "the machine trusts, or those in the file that `SSL_CERT_FILE` of the server's environment names",
        choices=("starttls", "tls", "none"),
    )
    smtp_user: str | None = setting(None, "user to log in as at the mail server")
    smtp_password_file: str | None = setting(None, "file with the password, that only the server may read")
    mail_from: str | None = setting(
        None, "sender of mails. Not set: `heliostat@` and the name of this machine", example='"gpu@example.org"'
    )


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Accounts and tokens."""

    admit_local_users: bool = setting(
        True, "a Unix user gets an account at first contact; `false`: an admin creates them"
    )
    default_department: str = setting("default", "department that is made with the first account")
    default_project: str = setting(
        "default", "project of new accounts, and of jobs that name none. A change moves nobody"
    )
    token_days: int = setting(90, "days that a new token is valid if it names none", least=1)


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """What jobs leave on disk, and the code that people upload for them."""

    keep_job_folders_days: int = setting(
        0, "days after its end that the folder of a job, with its output, is kept; 0: for ever", least=0
    )
    keep_records: bool = setting(
        True,
        "note with each job the code it was submitted with and the machine it ran on, for `helio show --record`, "
        "`rerun` and `diff`",
    )
    upload_max_size: str = setting("500M", "limit on the code uploaded for one job", **_SIZE)
    upload_quota: str = setting("5G", "limit on all code that one person has uploaded", **_SIZE)
    keep_uploads_days: int = setting(
        30, "days after its last use that uploaded code is kept; that of unfinished jobs is kept longer", least=1
    )


@dataclass(frozen=True, slots=True)
class MonitoringSettings:
    """Samples of what jobs and nodes use."""

    sample_seconds: int = setting(
        10,
        "time between two samples of what jobs and nodes use; 0: none, and there are no stats",
        least=0,
        most=60,
    )
    keep_samples_days: float = setting(1.0, "days that each sample is kept", least=0.05, most=31)
    keep_five_minute_days: float = setting(
        31.0, "days that the mean and the maximum of every five minutes are kept", least=1
    )
    keep_hourly_days: float = setting(1095.0, "days that the mean and the maximum of every hour are kept", least=1)


_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_PARTITIONS = rf"{_WORD}(,{_WORD})*"
_PLACE = rf"(?=.)(partition={_PARTITIONS}( |$))?(feature={_WORD}( |$))*"


def _is_node_command(words: Sequence[str]) -> bool:
    """A program and its arguments, with placeholders for what we say."""
    missing = [place for place in ("{verb}", "{node}", "{conf}") if not any(place in word for word in words)]
    return not words or not (missing or "{" in words[0])


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """How jobs are handed to Slurm."""

    partition: str | None = setting(
        None,
        "partition of jobs that nothing sends elsewhere, or several. Not set: Slurm's default",
        pattern=_PARTITIONS,
        example='"gpu,old"',
    )
    data_classes: Mapping[str, str] = setting(
        {},
        "where jobs with data of a class may run",
        keys=r"\d{1,2}",
        pattern=_PLACE,
        example='{ 2 = "partition=secure", 3 = "partition=secure feature=vault" }',
    )
    labels: Mapping[str, str] = setting(
        {},
        "what a label means in Slurm; other labels are features of that name",
        keys=r"[^\s,&|]{1,64}",
        pattern=_PLACE,
        example='{ big = "partition=bigmem", "disk=ssd" = "feature=ssd" }',
    )
    qos: Mapping[str, str] = setting(
        {},
        "QOS of a priority class; other classes have that of their name, `normal` the user's default",
        keys="scavenger|normal|interactive|urgent",
        pattern=_WORD,
        example='{ urgent = "high" }',
    )
    gpu_types: Mapping[str, str] = setting(
        {},
        "a GPU type, and Slurm's word for it; other types are called as Slurm calls them",
        keys=_WORD,
        pattern=_WORD,
        example='{ A100 = "nvidia_a100_80gb" }',
    )
    node_command: tuple[str, ...] = setting(
        (),
        "stops and starts slurmd on a node whose GPUs come and go",
        fits=_is_node_command,
        example='["ssh", "{node}", "slurm-node", "{verb}", "{node}", "{conf}"]',
        see="admins.md#gpus-that-come-and-go",
    )
    sample_seconds: int = setting(
        60, "time between two samples of what running jobs use (`sstat`), 50 jobs at a time; 0: none", least=0
    )
