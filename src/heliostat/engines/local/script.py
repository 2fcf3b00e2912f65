"""The script an attempt's payload starts as: pure text, no input reaches a shell unquoted.

It reaches the payload on an open descriptor: the environment in it, which may hold secrets, is neither on a
command line, which everybody can read, nor on the disk.
"""

from dataclasses import dataclass
from shlex import quote

from heliostat.models import Attempt

SCRIPT_DESCRIPTOR = 8
_SCRIPT = f"/proc/self/fd/{SCRIPT_DESCRIPTOR}"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Person:
    """The Unix user a payload runs as."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str


@dataclass(frozen=True, slots=True)
class Places:
    """Where the attempt finds its things."""

    workdir: str
    script: str | None  # a copy of the submitted script
    installation: str  # HELIOSTAT_HOME
    mark: str  # tells this attempt's processes from all others on the machine


def payload_script(attempt: Attempt, person: Person, places: Places) -> str:
    environment = base_environment(attempt, person, places) | dict(attempt.job.spec.env)
    command = attempt.job.spec.command
    argv = command if places.script is None else (places.script, *command)
    lines = [
        f"exec {SCRIPT_DESCRIPTOR}<&-",
        "umask 022",
        *(f"export {name}={quote(value)}" for name, value in environment.items()),
        f"cd -- {quote(places.workdir)} || {{",
        "    echo 'heliostat: the working directory cannot be entered' >&2",
        "    exit 126",
        "}",
        f"exec {' '.join(quote(word) for word in argv)}",
    ]
    return "\n".join(lines) + "\n"


def base_environment(attempt: Attempt, person: Person, places: Places) -> dict[str, str]:
    """A clean environment: nothing of the server's own, what a login gives, and what the job should know."""
    job = attempt.job
    devices = ",".join(attempt.devices)
    environment = {
        "HOME": person.home,
        "USER": person.name,
        "LOGNAME": person.name,
        "SHELL": person.shell,
        "PATH": DEFAULT_PATH,
        "LANG": "C.UTF-8",
        "HELIOSTAT_HOME": places.installation,
        "HELIOSTAT_JOB_ID": str(job.id),
        "HELIOSTAT_JOB_NAME": job.name,
        "HELIOSTAT_PROJECT": job.project,
        "HELIOSTAT_ATTEMPT": str(job.attempt),
        "HELIOSTAT_ATTEMPT_ID": attempt.id,
        "HELIOSTAT_MARK": places.mark,
        "HELIOSTAT_NODE": attempt.node,
        "HELIOSTAT_CPUS": str(job.resources.cpus),
        "HELIOSTAT_MEMORY_MIB": str(job.resources.memory_mib),
        "HELIOSTAT_GPUS": str(job.resources.gpus),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": devices,
        "NVIDIA_VISIBLE_DEVICES": devices or "void",
        "OMP_NUM_THREADS": str(job.resources.cpus),
    }
    if job.array_id is not None:
        environment["HELIOSTAT_ARRAY_ID"] = str(job.array_id)
        environment["HELIOSTAT_ARRAY_INDEX"] = str(job.array_index)
    return environment


def payload_argv(person: Person, as_another_user: bool) -> list[str]:
    """What the wrapper runs. `.` reads the script into the wrapper's own fork: one program less to start."""
    if not as_another_user:
        return [".", _SCRIPT]
    identity = [f"--reuid={person.uid}", f"--regid={person.gid}", "--init-groups", "--inh-caps=-all"]
    return ["exec", "/usr/bin/setpriv", *identity, "/bin/sh", _SCRIPT]
