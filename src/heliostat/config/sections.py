"""Every setting of `cluster.toml`: a record for each section, with help, limits and default of each field."""

import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heliostat.config.home import DEFAULT_PORT, Home
from heliostat.config.setting_rules import setting

_SIZE = {"pattern": r"[1-9]\d{0,8}(\.\d{1,3})?[MGT]", "advice": 'Write a size of at least 1M: "500M", "2G".'}
_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?"
_PROXY_URL = r"https?://((\*\.)?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*|\[[0-9A-Fa-f:]+\])(:\d{1,5})?/?"
_PUBLIC_URL = (
    r"https://([A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*|\[[0-9A-Fa-f:]+\])(:\d{1,5})?/?"
    r"|http://(([A-Za-z0-9-]+\.)*localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?/?"
)
_MONITORING_URL = r"https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:\d{1,5})?(/[A-Za-z0-9._~-]+)*/?"
_GPU_GROUP = r"\s*\d{1,4}[xX][A-Za-z][A-Za-z0-9.-]*\s*"
_NODE_GROUP = r"\s*\d{1,4}x(\d{1,2}x[A-Za-z][A-Za-z0-9-]*|cpu)\s*"
MAX_SIMULATED_GPUS = 256
_SMALLEST = 0.001


def _is_zone(name: str) -> bool:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


def _is_listen_address(text: str) -> bool:
    """An IP address or a host name; text of digits and dots, or with a colon, is meant as an address."""
    if ":" not in text and not re.fullmatch(r"[0-9.]+", text):
        return re.fullmatch(_HOST, text) is not None
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def split_address(text: str) -> tuple[str, int]:
    """Host and port of "127.0.0.1:9480" or "[::1]:9480"."""
    host, _, port = text.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _is_address_with_port(text: str) -> bool:
    if not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+):\d{1,5}", text):
        return False
    host, port = split_address(text)
    return _is_listen_address(host) and port <= 65535


def _are_simulated_gpus(text: str) -> bool:
    counts = [int(re.match(r"\s*(\d+)", group)[1]) for group in text.split(",")]  # type: ignore[index]
    return all(counts) and sum(counts) <= MAX_SIMULATED_GPUS


def _are_networks(texts: Sequence[str]) -> bool:
    try:
        return all(ipaddress.ip_network(text, strict=False) for text in texts)
    except ValueError:
        return False


def _local_zone() -> str:
    """UTC, if it is unknown."""
    linked = os.path.realpath("/etc/localtime").partition("/zoneinfo/")[2]
    candidates = (os.environ.get("TZ", "").removeprefix(":"), linked)
    return next((name for name in candidates if name and _is_zone(name)), "UTC")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The server, its addresses and its engine."""

    host: str = setting(
        "127.0.0.1",
        'address to listen on; `"0.0.0.0"` or `"::"` accepts connections from other machines',
        is_valid=_is_listen_address,
        advice='Write an address of this machine: "127.0.0.1", "0.0.0.0" or "::".',
        see="admins.md#network-access",
    )
    port: int = setting(DEFAULT_PORT, "TCP port; 0: any free port", minimum=0, maximum=65535)
    public_url: str | None = setting(
        None,
        "address that browsers use if the server is behind a reverse proxy with TLS",
        pattern=_PUBLIC_URL,
        advice='Write "https://gpu.example.org". Without https, others could read cookies on the way: http is '
        "allowed only for this machine. In a network without TLS, leave public_url out.",
        see="admins.md#network-access",
        example='"https://gpu.example.org"',
    )
    trusted_proxies: tuple[str, ...] = setting(
        (),
        "addresses or networks of reverse proxies; their `X-Forwarded-For` and `X-Forwarded-Proto` are believed. "
        "On this machine a proxy must run as root or as a system user",
        pattern=r"[0-9A-Fa-f:.]{2,45}(/\d{1,3})?",
        is_valid=_are_networks,
        example='["127.0.0.1", "10.1.0.0/24"]',
        advice='Write addresses or networks: "127.0.0.1", "10.1.0.0/24".',
        see="admins.md#network-access",
    )
    proxy_port: int | None = setting(
        None,
        "port of the proxy for sessions, services and ports of jobs, on the same `host`. "
        "Not set: `port` + 1 (8471), or any free port if that is in use",
        minimum=0,
        maximum=65535,
        see="admins.md#the-proxy",
    )
    proxy_url: str | None = setting(
        None,
        "address that browsers use for the proxy; with `*`, each session and service has its own host name",
        pattern=_PROXY_URL,
        example='"https://*.sessions.example.org"',
        advice='Write "https://sessions.example.org", or "https://*.sessions.example.org" for one host name each.',
    )
    max_request_bytes: int = setting(
        64 * 2**20,
        "maximum size of a large request, such as 10,000 jobs (64 MiB); others can have at most 4 MiB",
        minimum=1024,
        maximum=2**40,
    )
    max_connections_per_client: int = setting(
        1000,
        "maximum number of open connections of a Unix user of this machine, or of an address elsewhere; "
        "`trusted_proxies` have no limit",
        minimum=1,
        maximum=1e6,
    )
    time_zone: str | None = setting(
        None,
        "time zone of weekly reservations, and of schedules without one: they keep their time of day when clocks "
        "change. Existing reservations keep their zone. Not set: the zone of the server",
        is_valid=_is_zone,
        example='"Europe/Berlin"',
        advice='Write a name from /usr/share/zoneinfo, such as "Europe/Berlin" (package tzdata).',
    )
    log_format: str = setting(
        "logfmt", "format of the server's log", choices=("logfmt", "json"), see="monitoring.md#logs"
    )
    engine: str = setting(
        "local",
        "where jobs run; `simulated` is for tests",
        choices=("local", "simulated", "slurm"),
        see="admins.md#slurm",
    )
    node_name: str | None = setting(
        None,
        "node name of this machine. After a change the node is no longer drained. "
        "Not set: the host name up to its first dot",
    )
    simulate_gpus: str | None = setting(
        None,
        "simulated GPUs on this machine instead of real ones",
        pattern=rf"{_GPU_GROUP}(,{_GPU_GROUP})*",
        is_valid=_are_simulated_gpus,
        example='"2xA100,2xT4"',
        advice=f'Write count and type: "4xA100" or "2xA100,2xT4"; at most {MAX_SIMULATED_GPUS}.',
    )
    simulated_nodes: str = setting(
        "4x8xA100",
        "nodes of the simulated engine: nodes x GPUs x type, separated by commas; `3xcpu` for nodes without GPUs",
        pattern=rf"{_NODE_GROUP}(,{_NODE_GROUP})*",
        advice='Write nodes x GPUs x type: "8x4xA100", "2x8xA100,3xcpu".',
    )
    simulated_speed: float = setting(
        1.0, "simulation speed factor: how much faster than real time simulated jobs run", minimum=_SMALLEST
    )

    @property
    def effective_time_zone(self) -> str:
        """The name of the cluster's time zone."""
        return self.time_zone or _local_zone()


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Limits of jobs and schedules, fair share, priority and preemption."""

    default_time_limit_seconds: int | None = setting(
        None, "time limit of jobs without one. Not set: no limit", minimum=1, maximum=1e9, example="86400"
    )
    max_time_limit_seconds: int = setting(
        90 * 24 * 3600, "maximum time limit that may be requested (90 days)", minimum=1, maximum=1e9
    )
    max_grace_seconds: float = setting(
        300.0,
        "maximum grace period (time between the stop signal and KILL) that a job may request",
        minimum=0,
    )
    max_jobs_per_user: int = setting(50_000, "maximum number of unfinished jobs per user", minimum=0, maximum=1e9)
    pids_limit: int = setting(
        4096,
        "maximum number of processes and threads of a job, where cgroups are available",
        minimum=1,
        maximum=2**22,
    )
    min_schedule_seconds: int = setting(
        10, "minimum time between two jobs of a schedule", minimum=1, see="researchers.md#schedules"
    )
    max_schedules_per_user: int = setting(1000, "maximum number of schedules per user", minimum=0)
    half_life_days: float = setting(
        7.0, "fair share: number of days after which past usage counts half", minimum=_SMALLEST
    )
    share_weight: float = setting(
        2.0,
        "points that a job loses when its user has used one equal share of the project; between projects, class "
        "points that one share is worth",
        minimum=0.1,
    )
    size_weight: float = setting(1.0, "points that a job loses for requesting twice as many GPU-hours", minimum=0)
    assumed_limit_hours: float = setting(24.0, "assumed run time of jobs without a time limit", minimum=_SMALLEST)
    backfill_reservations: int = setting(
        1, "number of blocked jobs for which resources are reserved while smaller jobs backfill", minimum=1
    )
    preemption: bool = setting(True, "whether preemptible jobs may be preempted by jobs of a higher class")
    preemption_protection_seconds: float = setting(
        900.0,
        "minimum run time of a preempted job before it may be preempted again; it doubles each time",
        minimum=1,
        see="queue.md#preemption",
    )
    gpu_charges: Mapping[str, float] = setting(
        {},
        "cost of one GPU-hour in the fair share, by GPU type; 1 for other types, and a part of it for a MIG slice",
        minimum=_SMALLEST,
        see="admins.md#gpus",
        example="{ a100 = 2.0, t4 = 0.5 }",
    )
    cpu_charge: float = setting(0.02, "cost of one CPU-hour in the fair share", minimum=0)
    memory_gib_charge: float = setting(
        0.002, "cost of one GiB of memory for one hour in the fair share", minimum=0
    )
    urgent_gpu_hours_per_month: int = setting(
        100, "GPU-hours per project and month in the class `urgent`", minimum=0
    )
    interactive_points: float = setting(4.0, "bonus points of jobs in the class `interactive`", minimum=0)


_RUNTIMES = ("process", "bubblewrap", "podman", "apptainer", "docker")


@dataclass(frozen=True, slots=True)
class ContainerSettings:
    """Isolation of jobs, allowed images, and removal of fetched images."""

    runtimes: tuple[str, ...] = setting(
        ("process", "bubblewrap", "podman", "apptainer"),
        "allowed runtimes. `docker` can be added, but its users have the permissions of root on the node",
        choices=_RUNTIMES,
        see="admins.md#containers",
    )
    default_runtime: str = setting(
        "podman", "runtime of jobs with an image but without a runtime", choices=("podman", "apptainer", "docker")
    )
    required: bool = setting(False, "all jobs must run isolated; the runtime `process` is refused")
    required_for: tuple[str, ...] = setting(
        (), "jobs of these projects must run isolated; the runtime `process` is refused", example='["patients"]'
    )
    allowed_registries: tuple[str, ...] = setting(
        (),
        "registries from which images may be fetched. Empty: all",
        example='["registry.example.org/lab", "docker.io/library"]',
    )
    require_digest: bool = setting(
        False, "images must be named `NAME@sha256:…`; tags are refused because their content may change"
    )
    allowed_digests: tuple[str, ...] = setting(
        (),
        "digests of the images that may run, requested as `NAME@sha256:…`; images that users build or have in a "
        "file are then refused. Empty: all images may run",
        pattern="sha256:[0-9a-f]{64}",
        example='["sha256:…"]',
        advice='Write digests: "sha256:…", as podman image inspect shows them.',
    )
    mount_paths: tuple[str, ...] = setting(
        ("{home}",),
        "paths of a node that may be mounted, with everything below; may contain `{home}`, `{user}`, `{project}`",
        pattern=r"(/|\{home\})([^{}:]|\{(home|user|project)\})*(:ro)?",
        example='["{home}", "/srv/projects/{project}", "/srv/datasets:ro"]',
        advice='Write "{home}", "/srv/{project}", "/data:ro": absolute paths, with {home}, {user} and {project}.',
    )
    networks: tuple[str, ...] = setting(
        ("host", "private", "none"),
        "allowed networks of containers; the first is the default, `none` is always allowed",
        choices=("host", "private", "none"),
    )
    read_only_root: bool = setting(False, "containers can write only to their mounts and `/tmp`")
    oci_runtime: str | None = setting(
        None, "OCI runtime of podman and docker. Not set: crun or runc", example='"kata"'
    )
    oci_runtimes: Mapping[str, str] = setting(
        {},
        'OCI runtime of single projects; `"kata"` runs each container in a virtual machine',
        example='{ patients = "kata" }',
    )
    scratch: str = setting(
        "/var/tmp",  # noqa: S108 - the default value
        "on Slurm nodes: a folder on a local disk, writable for all users like `/tmp`, for images and the files "
        "that containers write",
        pattern=r"/[A-Za-z0-9._/-]{1,20}",
        advice="Write a folder on a local disk of each node, writable for all users; at most 20 characters.",
    )
    keep_days: int = setting(
        30,
        "days to keep a fetched image after its last use; 0: forever. Images in use are never removed",
        minimum=0,
    )
    max_size: str = setting(
        "200G",
        'maximum size of fetched images per user and node; least recently used first out. `"0"`: no limit',
        pattern="0|[1-9][0-9]{0,6}[MGT]",
        advice='Write a size: "200G"; "0" for no limit.',
    )


@dataclass(frozen=True, slots=True)
class EnvironmentSettings:
    """Software environments that are built for jobs."""

    builder: str = setting(
        "heliostat-build",
        "Unix user that builds shared environments; if it does not exist, each user has private environments",
        pattern="[a-z_][a-z0-9_-]{0,31}",
        advice="Write the name of a Unix user.",
        see="admins.md#environments",
    )
    keep_days: int = setting(
        90,
        "days to keep an environment after its last use; 0: forever. Environments in use are never removed",
        minimum=0,
    )
    max_size: str | None = setting(
        None,
        "maximum size of all environments together; the least recently used are removed first",
        pattern="[1-9][0-9]{0,6}[MGT]",
        example='"500G"',
        advice='Write a size: "500G".',
    )
    uv_variables: Mapping[str, str] = setting(
        {},
        "environment variables for uv, which installs packages: index, proxies, certificates. All users can read "
        "them: do not write passwords",
        keys="UV_[A-Z0-9_]+|SSL_CERT_(FILE|DIR)|(HTTPS?|ALL|NO)_PROXY",
        pattern=".*",
        is_valid=lambda table: all(value.isprintable() for value in table.values()),
        example='{ UV_DEFAULT_INDEX = "https://pypi.example.org/simple" }',
    )


DEFAULT_JUPYTER_REQUIREMENTS = ("jupyterlab>=4.4,<5", "ipykernel>=6.29,<8", "papermill>=2.6,<3")
"""Packages of notebooks without their own JupyterLab."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Interactive sessions and batch notebooks."""

    jupyter_command: str | None = setting(
        None,
        "path of JupyterLab for sessions that have none on their `PATH`; every user must be able to run it. "
        "Batch notebooks need papermill and nbconvert in the same folder",
        example='"/opt/jupyter/bin/jupyter-lab"',
    )
    jupyter_requirements: tuple[str, ...] = setting(
        DEFAULT_JUPYTER_REQUIREMENTS,
        "requirements of the environment built for sessions and batch notebooks without JupyterLab; versions may "
        "be pinned. `[]` turns it off",
        see="admins.md#environments",
    )
    idle_after: str = setting(
        "4h",
        "end a JupyterLab session that has been idle for this time, with a warning a quarter of it (at most 15 "
        'minutes) before; `"never"`: keep idle sessions',
        pattern="never|[1-9][0-9]{0,6}[smhd]",
        advice='Write a duration: "4h", "30m"; or "never".',
    )
    default_hours: float = setting(8.0, "time limit of sessions without one, in hours", minimum=0.01)


@dataclass(frozen=True, slots=True)
class NotificationSettings:
    """E-mails, chat messages and webhooks about jobs."""

    hosts: tuple[str, ...] = setting(
        (),
        'hosts to which messages may be posted; `"*"`: all. Ports other than 80 and 443 must be given',
        pattern=rf"\*|(\*\.)?{_HOST}(:\d{{1,5}})?",
        example='["hooks.slack.com", "*.example.org", "chat.lab:8065"]',
        see="admins.md#notifications",
    )
    networks: tuple[str, ...] = setting(
        (),
        "private networks in which these hosts may be; other private addresses are refused",
        pattern=r"[0-9A-Fa-f:.]{2,45}/\d{1,3}",
        example='["10.1.0.0/16", "fd00::/8"]',
    )
    mail_domains: tuple[str, ...] = setting(
        (), "domains to which e-mails may be sent", pattern=_HOST, example='["example.org"]'
    )
    pause_seconds: int = setting(
        60,
        "minimum time between two e-mails or chat messages of a notification; events in between are grouped",
        minimum=0,
    )
    late_seconds: int = setting(
        3600, "a job is late if it will start this much later than its first forecast", minimum=1
    )
    max_per_user: int = setting(20, "maximum number of notifications per user", minimum=0)
    smtp_host: str | None = setting(
        None, "mail server. Not set: no e-mails are sent", example='"smtp.example.org"'
    )
    smtp_port: int = setting(587, "port of the mail server", minimum=1, maximum=65535)
    smtp_tls: str = setting(
        "starttls",
        "`tls` for port 465, `none` for a mail server on this machine. Certificates are checked "
        "against those of this machine, or the file in the server's environment variable `SSL_CERT_FILE`",
        choices=("starttls", "tls", "none"),
    )
    smtp_user: str | None = setting(None, "user name for the mail server")
    smtp_password_file: str | None = setting(
        None, "file with the password for the mail server; only Heliostat should be able to read it"
    )
    mail_from: str | None = setting(
        None, "sender of e-mails. Not set: `heliostat@` and the name of this machine", example='"gpu@example.org"'
    )


MAX_TOKEN_DAYS = 366


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Accounts and tokens."""

    admit_local_users: bool = setting(
        True, "create an account when a Unix user first connects; `false`: an admin creates accounts"
    )
    default_department: str = setting("default", "department that is created with the first account")
    default_project: str = setting(
        "default", "project of new accounts, and of jobs without a project. Existing accounts keep their projects"
    )
    token_days: int = setting(
        90, "validity of new tokens in days, if not given at creation", minimum=1, maximum=MAX_TOKEN_DAYS
    )


def _is_absolute(path: str) -> bool:
    return path.startswith("/")


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """The database, files of jobs, and uploaded code."""

    database_folder: str | None = setting(
        None,
        "folder of the databases, on a disk of this machine, if the data directory is on a shared file system. "
        "Not set: the data directory",
        is_valid=_is_absolute,
        example='"/var/lib/heliostat-database"',
        see="admins.md#the-data-directory",
    )
    keep_job_folders_days: int = setting(
        0, "days to keep the folder of a job, with its output, after its end; 0: forever", minimum=0
    )
    log_max_size: str = setting(
        "1G",
        "maximum size on disk of one log (stdout or stderr of an attempt); of a larger log the beginning and the "
        'newest half are kept, and the log says what was removed. At least 1M; as good as no limit: `"1000T"`. '
        "Needs a file system that supports holes (ext4, XFS, Btrfs, ZFS); with Slurm it does not apply: use a "
        "quota of the file system",
        pattern=_SIZE["pattern"],
        advice='Write a size of at least 1M: "500M", "2G"; as good as no limit: "1000T".',
    )
    keep_records: bool = setting(
        True,
        "record the code and the node of each job, for `helio show --record`, `rerun` and `diff`",
    )
    upload_max_size: str = setting("500M", "maximum size of the code uploaded for one job", **_SIZE)
    upload_quota: str = setting(
        "5G", "maximum size of all uploaded code of a user; each file counts at least 16 KiB", **_SIZE
    )
    upload_copies_quota: str = setting(
        "100G",
        "maximum size of the copies of uploaded code for the unfinished jobs of a user; each file counts at least "
        "16 KiB",
        **_SIZE,
    )
    keep_uploads_days: int = setting(
        30,
        "days to keep uploaded code after its last use; code of unfinished jobs and of schedules is kept",
        minimum=1,
    )


@dataclass(frozen=True, slots=True)
class BackupSettings:
    """Regular backups."""

    every_hours: float = setting(24.0, "time between two backups; 0: none are made", minimum=0)
    keep: int = setting(7, "number of backups to keep; older ones are removed after a new one", minimum=1)
    folder: str | None = setting(
        None,
        "folder of the backups, best on another machine's disk. Not set: `backups` in the data directory",
        is_valid=_is_absolute,
        example='"/net/backup/heliostat"',
        see="admins.md#backup",
    )
    logs: bool = setting(False, "whether backups contain the logs of jobs")

    def folder_of(self, home: Home) -> Path:
        return Path(self.folder) if self.folder else home.backups


@dataclass(frozen=True, slots=True)
class MonitoringSettings:
    """Usage samples of jobs and nodes, and metrics for Prometheus."""

    sample_seconds: int = setting(
        10,
        "time between two usage samples of jobs and nodes; 0: no samples and no statistics",
        minimum=0,
        maximum=60,
    )
    keep_samples_days: float = setting(1.0, "days to keep single samples", minimum=0.05, maximum=31)
    keep_five_minute_days: float = setting(
        31.0, "days to keep the mean and the maximum of every five minutes", minimum=1
    )
    keep_hourly_days: float = setting(1095.0, "days to keep the mean and the maximum of every hour", minimum=1)
    metrics_address: str | None = setting(
        None,
        "address that serves `/metrics`, `/healthz` and `/readyz` without a login, to all who can connect",
        is_valid=_is_address_with_port,
        example='"127.0.0.1:9480"',
        advice='Write an address of this machine with a port: "127.0.0.1:9480", "[::1]:9480".',
        see="monitoring.md#metrics",
    )
    node_exporter_port: int = setting(
        9100, "port of node_exporter on the nodes, for service discovery; 0: not used", minimum=0, maximum=65535
    )
    dcgm_exporter_port: int = setting(
        9400,
        "port of dcgm-exporter on nodes with GPUs, for service discovery; 0: not used",
        minimum=0,
        maximum=65535,
    )
    co2_grams_per_kwh: float | None = setting(
        None,
        "CO2 in grams of a kWh of your electricity, for reports. Not set: reports show energy only",
        minimum=0,
        maximum=5000,
        example="380",
    )
    grafana_url: str | None = setting(
        None,
        "address of Grafana with the dashboards of Heliostat, to which the pages of jobs and nodes link",
        pattern=_MONITORING_URL,
        example='"https://grafana.example.org"',
        see="alerts-and-dashboards.md#dashboards",
    )
    prometheus_url: str | None = setting(
        None,
        "Prometheus with the metrics of dcgm-exporter; with Slurm, the usage of GPUs is read from it",
        pattern=_MONITORING_URL,
        example='"http://127.0.0.1:9090"',
        see="alerts-and-dashboards.md#usage-of-gpus-on-slurm",
    )


def _warns_before_it_acts(steps: Sequence[str]) -> bool:
    return "message" in steps or not {"preempt", "end"} & set(steps)


@dataclass(frozen=True, slots=True)
class FairUseSettings:
    """Steps against GPUs that jobs hold and do not use."""

    idle_steps: tuple[str, ...] = setting(
        ("note", "message", "manager"),
        "steps against idle GPUs, always in this order: a note on the page of the job; a message to its owner; a "
        "message to the managers of its project; preempt it, if it is preemptible; end it. Sessions are not "
        "preempted or ended, see `sessions.idle_after`. `[]` turns the steps off",
        choices=("note", "message", "manager", "preempt", "end"),
        is_valid=_warns_before_it_acts,
        advice='Write some of "note", "message", "manager", "preempt", "end"; with "preempt" or "end" '
        'also "message".',
        see="admins.md#idle-gpus",
    )
    idle_minutes: float = setting(
        30.0, "minutes without use of any GPU of a job before its first step", minimum=10, maximum=10_080
    )
    idle_percent: float = setting(
        5.0,
        "mean utilisation over five minutes, in percent, from which a GPU counts as used",
        minimum=0.1,
        maximum=100,
    )
    answer_minutes: float = setting(
        30.0, "minutes between two steps, in which the owner can answer", minimum=5, maximum=10_080
    )
    max_answers: int = setting(
        3, 'how often "I need it until …" can be answered for a job', minimum=0, maximum=1000
    )
    max_answer_hours: float = setting(24.0, "longest time of such an answer, in hours", minimum=0.1, maximum=720)
    credit_gpu_hours_per_week: float = setting(
        20.0,
        "maximum credit of a user in a project for idle GPUs that are given back early; 0: no credit",
        minimum=0,
    )


_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_PARTITIONS = rf"{_WORD}(,{_WORD})*"
_PLACE = rf"(?=.)(partition={_PARTITIONS}( |$))?(feature={_WORD}( |$))*"


def _is_node_command(words: Sequence[str]) -> bool:
    """A program and its arguments, with all placeholders."""
    missing = [name for name in ("{verb}", "{node}", "{conf}") if not any(name in word for word in words)]
    return not words or not (missing or "{" in words[0])


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """Submission of jobs to Slurm."""

    partition: str | None = setting(
        None,
        "default partition, or several. Not set: Slurm's default",
        pattern=_PARTITIONS,
        example='"gpu,old"',
    )
    data_classes: Mapping[str, str] = setting(
        {},
        "partition and features for jobs with data of a class",
        keys=r"\d{1,2}",
        pattern=_PLACE,
        example='{ 2 = "partition=secure", 3 = "partition=secure feature=vault" }',
    )
    labels: Mapping[str, str] = setting(
        {},
        "partition or features for a label; other labels are features of the same name",
        keys=r"[^\s,&|]{1,64}",
        pattern=_PLACE,
        example='{ big = "partition=bigmem", "disk=ssd" = "feature=ssd" }',
    )
    qos: Mapping[str, str] = setting(
        {},
        "QOS of a priority class; other classes use the QOS of the same name, `normal` the user's default",
        keys="scavenger|normal|interactive|urgent",
        pattern=_WORD,
        example='{ urgent = "high" }',
    )
    gpu_types: Mapping[str, str] = setting(
        {},
        "name of a GPU type in Slurm; other types have the same name in Slurm",
        keys=_WORD,
        pattern=_WORD,
        example='{ A100 = "nvidia_a100_80gb" }',
    )
    apply_accounts: bool = setting(
        False,
        "apply changes of users, projects, shares and quotas to Slurm's accounts, as `helio slurm apply` does",
        see="admins.md#accounts-in-slurm",
    )
    node_command: tuple[str, ...] = setting(
        (),
        "command that stops and starts slurmd on a node whose GPUs change",
        is_valid=_is_node_command,
        example='["ssh", "{node}", "slurm-node", "{verb}", "{node}", "{conf}"]',
        see="admins.md#change-the-gpus-of-a-node",
    )
    sample_seconds: int = setting(
        60, "time between two usage samples of running jobs (`sstat`), 50 jobs at a time; 0: no samples", minimum=0
    )
