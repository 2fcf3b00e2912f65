"""A further command inside a running job of Slurm: a step beside those it has, on its first node.

`srun` runs here as the job's user, with nothing of the job's environment: what a user may set must not act on this
machine, where they may have no login. The script that sets it is a file of the user's in the job's folder.
"""

import contextlib
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliostat.engines.containers import Door, enter_script
from heliostat.engines.environment import DEFAULT_PATH, Person
from heliostat.engines.folders import JobFolder
from heliostat.engines.inside import Inside, as_user
from heliostat.models import Attempt
from heliostat.runtimes.shell import blank, quoted

NODE_LINE = 'export HELIOSTAT_NODE="$SLURMD_NODENAME" NVIDIA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-void}"'


# The first task of this job on this node that is in its container.
_FIND = """\
for heliostat_file in "$heliostat_base/$SLURM_JOB_ID."*/shell; do
    [ -e "$heliostat_file" ] || continue
    read -r heliostat_shell heliostat_node <"$heliostat_file"
    [ "$heliostat_node" != "$SLURMD_NODENAME" ] || break
done
if [ "$heliostat_node" != "$SLURMD_NODENAME" ]; then
    echo 'heliostat: nothing runs in the container yet' >&2
    exit 125
fi
heliostat_folder=${heliostat_file%/shell}"""


@dataclass(frozen=True, slots=True)
class Step:
    number: int  # of its job in Slurm
    on_terminal: bool = False
    node: str = ""  # none: the first


def script_into_container(attempt: Attempt, command: Sequence[str], terminal: str, base: str, workdir: str) -> str:
    """`base` is the folder in which containers of its user keep their things. Raises Refused."""
    folder = blank("heliostat_folder")
    door = Door(folder, f"{folder}/s", blank("heliostat_shell"), workdir, terminal)
    return enter_script(attempt, door, command, f"heliostat_base={quoted(base)}", _FIND)


def srun_inside(
    script: bytes, person: Person, folder: JobFolder, step: Step, environment: Mapping[str, str]
) -> Inside:
    """`environment` is that of Slurm's commands. OSError when the file cannot be made."""
    path = f"{folder.path}/inside-{secrets.token_hex(8)}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with open(descriptor, "wb") as file:
        file.write(script)
        os.fchown(descriptor, person.uid, person.gid)
    words = (
        f"--jobid={step.number}",
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        "--chdir=/",
        "--export=NONE",
        "--quiet",
        "--unbuffered",
        "--mpi=none",
        *([f"--nodelist={step.node}"] if step.node else []),
        *(["--pty"] if step.on_terminal else []),
    )
    kept = {name: environment[name] for name in ("SLURM_CONF",) if name in environment}
    path_of_tools = environment.get("PATH", DEFAULT_PATH)
    return Inside(
        argv=(*as_user(person), "srun", *words, "/bin/sh", path),
        environment={"PATH": path_of_tools, "HOME": person.home, "LANG": "C.UTF-8", **kept},
        close=lambda: _remove(path),
        owner=person.uid,
    )


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
