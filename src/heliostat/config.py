"""Where an installation lives and how it is set: one Settings object, built once and passed in."""

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from heliostat.errors import Invalid

SYSTEM_HOME = Path("/var/lib/heliostat")
DEFAULT_PORT = 8470


@dataclass(frozen=True, slots=True)
class Home:
    """The data directory: everything of one installation lives under it."""

    path: Path

    @property
    def database(self) -> Path:
        return self.path / "heliostat.db"

    @property
    def socket(self) -> Path:
        return self.path / "heliostat.sock"

    @property
    def jobs(self) -> Path:
        """Logs, scripts and private folders of jobs; each belongs to its user."""
        return self.path / "jobs"

    @property
    def workflows(self) -> Path:
        """What jobs of workflows hand on as files: a folder for each job, which belongs to its user."""
        return self.path / "workflows"

    @property
    def images(self) -> Path:
        """What containers are made of; a folder for each Unix user."""
        return self.path / "images"

    @property
    def logins(self) -> Path:
        """For registries, each for one push and readable by whom it is for alone."""
        return self.path / "logins"

    @property
    def uploads(self) -> Path:
        """Code that people have sent for their jobs; a folder for each person, only the server reads it."""
        return self.path / "uploads"

    @property
    def environments(self) -> Path:
        """Software that was built for jobs, and what it is built with."""
        return self.path / "environments"

    @property
    def attempts(self) -> Path:
        """What the wrappers of attempts leave on disk; only the server reads it."""
        return self.path / "attempts"

    @property
    def samples(self) -> Path:
        """What jobs and nodes used over time: large, and not precious."""
        return self.path / "samples.db"

    @property
    def server_log(self) -> Path:
        return self.path / "server.log"

    @property
    def lock(self) -> Path:
        return self.path / "server.lock"

    @property
    def status(self) -> Path:
        """Process id and address of the running server."""
        return self.path / "server.json"

    @property
    def history_key(self) -> Path:
        """What makes the pseudonyms of exports; only the server reads it."""
        return self.path / "history.key"

    @property
    def notice_key(self) -> Path:
        """What the secrets that sign notices are made from; only the server reads it."""
        return self.path / "notice.key"

    @property
    def session_key(self) -> Path:
        """From which the secrets of some sessions follow; only the server reads it."""
        return self.path / "session.key"

    @property
    def config(self) -> Path:
        return self.path / "cluster.toml"


JUPYTER = ("jupyterlab>=4.4,<5", "ipykernel>=6.29,<8", "papermill>=2.6,<3")
"""What notebooks run with where people bring nothing of their own."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting of `cluster.toml`, with its default."""

    home: Home
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    public_url: str | None = None  # where browsers find it, when that is behind a proxy: "https://gpu.example.org"
    proxy_port: int | None = None  # of sessions and ports of jobs; None: the one after `port`
    proxy_url: str | None = None  # where browsers find these: "https://*.gpu.example.org", each at its own name
    jupyter_command: str | None = None  # where JupyterLab is, for sessions whose own environment has none
    jupyter_requirements: tuple[str, ...] = JUPYTER  # built once where there is neither; (): not
    session_idle_after: str = "4h"  # a session nobody uses for so long is ended, after a warning; "never"
    session_hours: float = 8.0  # how long a session lasts that asks for nothing else
    engine: str = "local"  # local, simulated, slurm
    simulate_gpus: str | None = None  # "4xA100": made-up GPUs on this machine
    simulated_nodes: str = "4x8xA100"  # nodes x GPUs x type, for the simulated engine
    simulated_speed: float = 1.0  # how much faster than real time simulated jobs run
    node_name: str | None = None  # None: the host name
    admit_local_users: bool = True  # a Unix user of this machine gets an account at first contact
    time_zone: str | None = None  # in which weekly reservations repeat; None: that of the server
    least_schedule_seconds: int = 10  # schedules may not fire more often than this
    max_schedules_per_user: int = 1000
    default_department: str = "default"
    default_project: str = "default"
    default_time_limit_seconds: int | None = None
    max_time_limit_seconds: int = 90 * 24 * 3600
    max_grace_seconds: float = 300.0  # the longest a job may take to go once it is told to
    max_queued_jobs_per_user: int = 50_000
    max_request_bytes: int = 64 * 2**20
    keep_job_folders_days: int = 0  # after a job is over; 0: for ever
    upload_max_size: str = "500M"  # of the code uploaded for one job
    upload_quota: str = "5G"  # of all code one person has uploaded
    keep_uploads_days: int = 30  # after they were last of use; those of unfinished jobs are kept
    keep_records: bool = True  # of the code jobs were submitted with, and the machines they ran on
    pids_limit: int = 4096  # processes and threads one job may have
    runtimes: tuple[str, ...] = ("process", "bubblewrap", "podman", "apptainer")  # how jobs may be isolated
    container_runtime: str = "podman"  # of jobs with an image that name none
    containers_required: bool = False  # of every job
    containers_required_for: tuple[str, ...] = ()  # of the jobs of these projects
    allowed_registries: tuple[str, ...] = ()  # "registry.example.org/lab"; none: all
    images_by_digest: bool = False  # no name:tag, whose meaning may change
    known_digests: tuple[str, ...] = ()  # "sha256:…": of the only images that may run; none: all
    mount_paths: tuple[str, ...] = ("{home}",)  # what containers may see of a node: "/srv/{project}", "/data:ro"
    container_networks: tuple[str, ...] = ("host", "private", "none")  # allowed; the first is the default
    read_only_root: bool = False  # containers write to their mounts only
    oci_runtime: str | None = None  # what podman and docker start containers with; None: crun or runc
    container_scratch: str = "/var/tmp"  # noqa: S108  # of nodes of Slurm: local, for images and what containers write
    oci_runtimes: Mapping[str, str] = field(default_factory=dict)  # by project: { patients = "kata" }
    environments_builder: str = "heliostat-build"  # the Unix user that builds what everybody shares
    environments_keep_days: int = 90  # after it was last used; 0: for ever
    environments_max_size: str | None = None  # of all together: "500G"; what was not used longest goes first
    images_keep_days: int = 30  # after a container last used an image that was fetched; 0: for ever
    images_max_size: str = "200G"  # of those of one person on one node, least used first; "0": all there is
    uv_variables: Mapping[str, str] = field(default_factory=dict)  # { UV_DEFAULT_INDEX = "https://…" }
    token_days: int = 90  # how long a new token is good for
    half_life_days: float = 7.0  # after which past usage counts half
    share_weight: float = 2.0  # points that having used one share costs; a point is worth waiting twice as long
    size_weight: float = 1.0  # points that asking for twice as many GPU-hours costs
    assumed_limit_hours: float = 24.0  # of jobs without a time limit
    backfill_reservations: int = 1  # for how many blocked jobs room is kept
    preemption: bool = True  # may preemptible jobs be sent back to the queue
    preemption_protection_seconds: float = 900.0  # for one who was sent away; twice as long each time
    gpu_charges: Mapping[str, float] = field(default_factory=dict)  # per hour, by GPU type; others cost 1
    cpu_charge: float = 0.02  # per hour of a cpu
    memory_gib_charge: float = 0.002  # per hour of a GiB
    urgent_gpu_hours_per_month: int = 100  # of the class urgent, per project
    interactive_points: float = 4.0  # of the class interactive
    sample_seconds: int = 10  # between two looks at what jobs and nodes use; 0: nobody looks
    fine_samples_days: float = 1.0  # how long every look is kept
    five_minute_samples_days: float = 31.0  # how long their mean and largest of five minutes
    hourly_samples_days: float = 1095.0  # and of an hour
    slurm_partition: str | None = None  # where jobs go that nothing sends elsewhere; None: Slurm's default
    slurm_data_classes: Mapping[str, str] = field(default_factory=dict)  # { 2 = "partition=secure feature=vault" }
    slurm_labels: Mapping[str, str] = field(default_factory=dict)  # { big = "partition=bigmem" }; else features
    slurm_qos: Mapping[str, str] = field(default_factory=dict)  # { urgent = "high" }; else that of the same name
    slurm_gpu_types: Mapping[str, str] = field(default_factory=dict)  # our word for it, and Slurm's
    slurm_node_command: Sequence[str] = field(default_factory=list)  # runs slurmd: {verb} {node} {conf}
    slurm_live_seconds: int = 60  # between two looks at what running jobs use there; 0: nobody looks
    notice_hosts: tuple[str, ...] = ()  # that notices may be posted to: "hooks.slack.com", "chat.lab:8065"
    notice_networks: tuple[str, ...] = ()  # private ones in which these may be: "10.1.0.0/16"
    notice_mail_domains: tuple[str, ...] = ()  # that notices may be mailed to: "example.org"
    notice_pause_seconds: int = 60  # between two mails of one notice, or two words in a chat; they gather
    notice_late_seconds: int = 3600  # a job is late if it will start so much later than was first foretold
    max_notices_per_user: int = 20
    smtp_host: str | None = None  # who takes our mails; None: none are sent
    smtp_port: int = 587
    smtp_tls: str = "starttls"  # starttls, tls, none
    smtp_user: str | None = None
    smtp_password_file: str | None = None
    mail_from: str | None = None  # None: heliostat@ and the name of this machine
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)  # no setting: where each was set

    @property
    def zone(self) -> str:
        """The name of the cluster's time zone."""
        return self.time_zone or _zone_of_this_machine()


def find_home(environ: "os._Environ[str] | dict[str, str]" = os.environ) -> Home:
    """HELIOSTAT_HOME; else the machine's installation when there is one; else the user's own."""
    if chosen := environ.get("HELIOSTAT_HOME"):
        return Home(Path(chosen).expanduser().absolute())
    if os.geteuid() == 0 or (SYSTEM_HOME / "heliostat.sock").exists():
        return Home(SYSTEM_HOME)
    data = environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Home(Path(data).expanduser().absolute() / "heliostat")


def load_settings(home: Home, **overrides: Any) -> Settings:
    """`cluster.toml` under the home, if there is one; arguments that are not None win over it."""
    written = _read_toml(home.config)
    said = {name: value for name, value in overrides.items() if value is not None}
    sources = dict.fromkeys(written, home.config.name) | dict.fromkeys(said, "command line")
    values: dict[str, Any] = written | said
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return replace(Settings(home), **values | lists, sources=sources)


def _read_toml(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} cannot be read: {error}", "Mend that line; the format is TOML.") from error
    known = asdict(Settings(Home(path.parent)))
    del known["home"], known["sources"]
    for name, value in values.items():
        _check(path, name, value, known)
    return values


def _check(path: Path, name: str, value: object, known: dict[str, Any]) -> None:
    if name not in known:
        hint = _REMOVED.get(name) or f"Settings are: {', '.join(sorted(known))}."
        raise Invalid(f"{path}: there is no setting {name!r}", hint)
    default = known[name]
    expected = _kinds(default)
    if not isinstance(value, expected) or (isinstance(value, bool) and not isinstance(default, bool)):
        raise Invalid(f"{path}: {name} = {value!r} is of the wrong kind", f"Its default is {default!r}.")
    if name == "time_zone":
        _check_zone(path, value)
    if name in ("proxy_port", "proxy_url"):
        _check_proxy(path, name, value)
    if name in _LEAST:
        _check_number(path, name, value, _LEAST[name])
    if name in _SLURM:
        _check_slurm(path, name, value)
    elif name == "slurm_node_command" and isinstance(value, list):
        _check_command(path, name, value)
    elif isinstance(value, dict) and name == "gpu_charges":
        _check_charges(path, name, value)
    elif isinstance(value, dict) and name == "uv_variables":
        _check_variables(path, name, value)
    elif isinstance(value, dict | list):
        _check_words(path, name, value.values() if isinstance(value, dict) else value)
    elif name in _WORDS or (name == "oci_runtime" and value is not None):
        _check_words(path, name, [value])


_REMOVED = {  # settings of earlier versions, and what to do instead
    name: f"Heliostat speaks to Slurm by its command-line tools; remove {name}."
    for name in ("slurm_api", "slurm_token_file", "slurm_api_user")
}


def _kinds(default: object) -> type | tuple[type, ...]:
    if default is None:
        return (str, int)
    if isinstance(default, float):
        return (int, float)
    return list if isinstance(default, tuple) else type(default)


def _check_words(path: Path, name: str, words: Iterable[object]) -> None:
    """Each must be a word, of some settings one that is known."""
    pattern, hint = _WORDS.get(name, (r".+", "It holds words in quotation marks."))
    for word in words:
        if not isinstance(word, str) or not re.fullmatch(pattern, word):
            raise Invalid(f"{path}: {name} holds {word!r}", hint)


_WORDS = {
    "upload_max_size": (r"[1-9]\d{0,8}(\.\d{1,3})?[MGT]", 'Write a size: "500M", "2G".'),
    "upload_quota": (r"[1-9]\d{0,8}(\.\d{1,3})?[MGT]", 'Write a size: "5G", "1T".'),
    "runtimes": (
        "process|bubblewrap|podman|apptainer|docker",
        "Runtimes are: process, bubblewrap, podman, apptainer, docker.",
    ),
    "container_runtime": ("podman|apptainer|docker", "Images are run by podman, apptainer or docker."),
    "container_scratch": (
        r"/[A-Za-z0-9._/-]{1,20}",
        "It is a folder on a local disk of each node, of at most 20 characters, in which everybody may make one.",
    ),
    "session_idle_after": (r"never|[1-9][0-9]{0,6}[smhd]", 'Write how long: "4h", "30m"; or "never".'),
    "environments_builder": (r"[a-z_][a-z0-9_-]{0,31}", "Write the name of a Unix user."),
    "images_max_size": (r"0|[1-9][0-9]{0,6}[MGT]", 'Write a size: "200G"; "0" for no limit.'),
    "environments_max_size": (r"[1-9][0-9]{0,6}[MGT]", 'Write a size: "500G".'),
    "notice_hosts": (
        r"\*|(\*\.)?[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?(:\d{1,5})?",
        'Write names of hosts: "hooks.slack.com", "*.example.org", "chat.lab:8065"; "*" for all.',
    ),
    "notice_networks": (r"[0-9A-Fa-f:.]{2,45}/\d{1,3}", 'Write networks: "10.1.0.0/16", "fd00::/8".'),
    "notice_mail_domains": (r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?", 'Write domains: "example.org".'),
    "known_digests": (r"sha256:[0-9a-f]{64}", 'Write digests: "sha256:…", as podman image inspect tells them.'),
    "smtp_tls": ("starttls|tls|none", "It is starttls, tls or none."),
    "container_networks": ("host|private|none", "Networks are: host, private, none."),
    "mount_paths": (
        r"(/|\{home\})([^{}:]|\{(home|user|project)\})*(:ro)?",
        'Write "{home}", "/srv/{project}", "/data:ro": absolute paths, with {home}, {user} and {project}.',
    ),
}


def _check_proxy(path: Path, name: str, value: object) -> None:
    if name == "proxy_port" and not (isinstance(value, int) and 0 <= value <= 65535):
        raise Invalid(f"{path}: proxy_port = {value!r} is no port", "Write a number, such as 8471; 0 takes any.")
    if name == "proxy_url" and not (isinstance(value, str) and re.fullmatch(_PROXY_URL, value)):
        hint = 'Write "https://sessions.example.org", or "https://*.sessions.example.org" for a name each.'
        raise Invalid(f"{path}: proxy_url = {value!r} is no such address", hint)


_PROXY_URL = r"https?://((\*\.)?[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*|\[[0-9A-Fa-f:]+\])(:\d{1,5})?/?"
_TINY = 0.001
_LEAST: dict[str, float] = {
    "half_life_days": _TINY,
    "share_weight": 0,
    "size_weight": 0,
    "assumed_limit_hours": _TINY,
    "backfill_reservations": 1,
    "preemption_protection_seconds": 1,
    "keep_job_folders_days": 0,
    "keep_uploads_days": 1,
    "environments_keep_days": 0,
    "images_keep_days": 0,
    "session_hours": 0.01,
    "cpu_charge": 0,
    "memory_gib_charge": 0,
    "urgent_gpu_hours_per_month": 0,
    "interactive_points": 0,
    "sample_seconds": 0,
    "slurm_live_seconds": 0,
    "fine_samples_days": 0.05,
    "five_minute_samples_days": 1,
    "hourly_samples_days": 1,
    "least_schedule_seconds": 1,
    "max_schedules_per_user": 0,
    "notice_pause_seconds": 0,
    "notice_late_seconds": 1,
    "max_notices_per_user": 0,
    "smtp_port": 1,
}
_MOST = 1e6
_MOST_OF: dict[str, float] = {"sample_seconds": 60, "fine_samples_days": 31, "smtp_port": 65535}


def _check_zone(path: Path, name: object) -> None:
    if not isinstance(name, str) or not _is_zone(name):
        raise Invalid(
            f"{path}: time_zone = {name!r} is not known here",
            'Write one of /usr/share/zoneinfo: "Europe/Berlin"; the package tzdata brings them.',
        )


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


def _check_charges(path: Path, name: str, charges: dict[str, object]) -> None:
    """What an hour of each type costs: `{ a100 = 2.0 }`."""
    for kind, charge in charges.items():
        if isinstance(charge, bool) or not isinstance(charge, int | float):
            raise Invalid(f"{path}: {name}.{kind} = {charge!r} is not a number", "Write { a100 = 2.0, t4 = 0.5 }.")
        _check_number(path, f"{name}.{kind}", charge, _TINY)


_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_PARTITIONS = rf"{_WORD}(,{_WORD})*"
_PLACE = rf"(?=.)(partition={_PARTITIONS}( |$))?(feature={_WORD}( |$))*"
_SLURM: dict[str, tuple[str, str, str]] = {  # what may stand before the equals sign, what after it, an example
    "slurm_partition": ("", _PARTITIONS, '"gpu"'),
    "slurm_data_classes": (r"\d{1,2}", _PLACE, '{ 2 = "partition=secure feature=vault" }'),
    "slurm_labels": (r"[^\s,&|]{1,64}", _PLACE, '{ big = "partition=bigmem", "disk=ssd" = "feature=ssd" }'),
    "slurm_qos": ("scavenger|normal|interactive|urgent", _WORD, '{ urgent = "high" }'),
    "slurm_gpu_types": (_WORD, _WORD, '{ A100 = "nvidia_a100" }'),
}


def _check_slurm(path: Path, name: str, value: Any) -> None:
    before, after, example = _SLURM[name]
    pairs = value.items() if isinstance(value, dict) else [("", value)]
    for key, said in pairs:
        if not (re.fullmatch(before, key) and isinstance(said, str) and re.fullmatch(after, said)):
            place = f"{name}.{key}" if key else name
            raise Invalid(f"{path}: {place} = {said!r} means nothing to Slurm", f"Write {name} = {example}.")


def _check_variables(path: Path, name: str, variables: dict[str, object]) -> None:
    """What uv reads: where packages come from, by which proxy, with whose certificates."""
    for key, value in variables.items():
        known = re.fullmatch(r"UV_[A-Z0-9_]+|SSL_CERT_(FILE|DIR)|(HTTPS?|ALL|NO)_PROXY", key)
        if not known or not isinstance(value, str) or not value.isprintable():
            example = '{ UV_DEFAULT_INDEX = "https://pypi.example.org/simple" }'
            raise Invalid(f"{path}: {name}.{key} = {value!r} is no such variable", f"Write {name} = {example}.")


def _check_command(path: Path, name: str, words: list[object]) -> None:
    """A program and its words, with places for what we say."""
    text = [word for word in words if isinstance(word, str) and word and "\0" not in word]
    missing = [place for place in ("{verb}", "{node}", "{conf}") if not any(place in word for word in text)]
    if words and (len(text) != len(words) or missing or "{" in text[0]):
        example = '["ssh", "{node}", "slurm-node", "{verb}", "{node}", "{conf}"]'
        raise Invalid(f"{path}: {name} = {words!r} is no such command", f"Write {name} = {example}.")


def _check_number(path: Path, name: str, value: Any, least: float) -> None:
    most = _MOST_OF.get(name, _MOST)
    if not (math.isfinite(value) and least <= value <= most):
        raise Invalid(f"{path}: {name} = {value!r} is out of range", f"Write a number from {least:g} to {most:g}.")
