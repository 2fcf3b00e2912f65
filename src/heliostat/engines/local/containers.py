"""Jobs in containers: what they find on this machine, how they get signals, and what is left of them."""

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from resource import RLIMIT_NOFILE, RLIMIT_NPROC, getrlimit

from heliostat.config import Home, Settings
from heliostat.engines.containers import (
    CONTAINER_CONFIG_FILES,
    ContainerContext,
    ContainerInputs,
    ExecTarget,
    make_container_spec,
)
from heliostat.engines.job_folders import AttemptRefused, JobFolder, make_private_folder, require_run_as_user
from heliostat.engines.job_variables import RunAsUser
from heliostat.engines.local.cgroup_fallback import container_runtime_folder
from heliostat.engines.local.cgroup_files import signal_all
from heliostat.engines.local.cgroups import Cgroup
from heliostat.engines.local.payload_script import PayloadContext, base_variables, starts_each_task, task_variables
from heliostat.errors import Invalid
from heliostat.models import Attempt, AttemptId
from heliostat.models.environments import IMAGE_BUILD_JOB, IMAGE_PUSH_JOB
from heliostat.runtimes.all_runtimes import RUNTIMES
from heliostat.runtimes.contract import (
    TOOL_PATH,
    ContainerIsolation,
    ContainerLimits,
    ContainerSpec,
    RuntimeCommand,
    UnsupportedByRuntime,
)


@dataclass(frozen=True, slots=True)
class ContainerPaths:
    """Where the containers of this installation keep their things."""

    settings: Settings
    instance: str
    device_files: tuple[str, ...] | None = None  # of its GPUs; None: they are made up

    def scratch_folder(self, attempt_id: AttemptId) -> str:
        job, _, number = attempt_id.partition(".")
        return f"{JobFolder.for_job(self.settings.home.jobs, int(job)).path}/{number}.container"

    @property
    def runtime_folder(self) -> str:
        return container_runtime_folder(self.instance)


def installation_id(home: Home) -> str:
    """Tells this installation from others on the machine."""
    return hashlib.sha256(str(home.path).encode()).hexdigest()[:8]


def make_tool_folder(home: Home, person: RunAsUser) -> str:
    """Where a tool of ours keeps its notes that runs for this person beside all attempts. Named like an attempt
    that never is: what is left of it goes like what is left of those."""
    runs = container_runtime_folder(installation_id(home))
    _make_shared(runs)
    make_private_folder(room := f"{runs}/0.{person.uid}", person)
    return room


def make_container_commands(
    attempt: Attempt, person: RunAsUser, places: PayloadContext, place: ContainerPaths
) -> tuple[RuntimeCommand, ...]:
    """One for each of its tasks. Raises Refused."""
    runtime = RUNTIMES[attempt.job.spec.runtime or place.settings.containers.default_runtime]
    if runtime.program and shutil.which(runtime.program, path=TOOL_PATH) is None:
        raise AttemptRefused(
            f"{runtime.program} is not installed on this machine, so nothing can run by {runtime.name}"
        )
    if runtime.name == "podman":
        _check_sub_ids(person)
    try:
        whole = _container(attempt, person, places, place)
        if runtime.needs_image:  # others keep nothing on the disk
            _make_rooms(attempt, person, place)
        return tuple(map(runtime.make_command, _tasks(whole, attempt)))
    except (UnsupportedByRuntime, Invalid) as error:
        raise AttemptRefused(str(error)) from None


def make_tool_variables(attempt: Attempt, person: RunAsUser, place: ContainerPaths) -> dict[str, str]:
    """Where podman keeps its things for a script of ours that builds or pushes an image; for others nothing.
    They go with the attempt, as those of containers do. Raises Refused."""
    if attempt.job.kind not in (IMAGE_BUILD_JOB, IMAGE_PUSH_JOB):
        return {}
    if shutil.which("podman", path=TOOL_PATH) is not None:
        _check_sub_ids(person)
    _make_rooms(attempt, person, place)
    store, scratch, run = _rooms(attempt, person, place)
    return {"HELIOSTAT_TOOL_STORE": store, "HELIOSTAT_TOOL_SCRATCH": scratch, "HELIOSTAT_TOOL_RUN": run}


def remove_container_files(place: ContainerPaths, attempt_ids: Collection[AttemptId]) -> None:
    """Of attempts that are over: what their containers wrote outside their mounts, and the tools' own notes."""
    for attempt_id in attempt_ids:
        for folder in (place.scratch_folder(attempt_id), f"{place.runtime_folder}/{attempt_id}"):
            if os.path.lexists(folder):
                _remove(folder)
        _remove_groups(f"heliostat-{place.instance}/{attempt_id}")


def find_orphaned_containers(place: ContainerPaths, kept: Collection[AttemptId]) -> list[AttemptId]:
    """Attempts of an earlier run of Heliostat that were not cleaned up."""
    with contextlib.suppress(OSError):
        return [name for name in os.listdir(place.runtime_folder) if name not in kept]
    return []


def make_cgroups_readable(enter_files: Collection[str]) -> None:
    """A container shows its cgroups to those inside, so its user must be able to look at them."""
    for file in enter_files:
        group = os.path.dirname(file)
        os.chmod(group, 0o755)
        os.chmod(os.path.dirname(group), 0o711)


def remove_empty_folders(place: ContainerPaths) -> None:
    """Remove the folders of the installation that are empty."""
    for folder in (place.runtime_folder, *map(str, Path("/sys/fs/cgroup").glob(f"*/heliostat-{place.instance}"))):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def find_exec_target(place: ContainerPaths, attempt: Attempt, pids: Iterable[int], terminal: str) -> ExecTarget:
    """Where to enter its container; of several, the first. Raises Refused."""
    first = next(container_init_pids(pids), None)
    if first is None:
        raise AttemptRefused("nothing runs in its container yet, or any more")
    workdir = (
        attempt.job.spec.workdir or f"{JobFolder.for_job(place.settings.home.jobs, attempt.job.id).path}/work"
    )
    _make_shared(place.runtime_folder)
    make_private_folder(f"{place.runtime_folder}/{attempt.id}", require_run_as_user(attempt.job.unix_user))
    return ExecTarget(
        f"{place.runtime_folder}/{attempt.id}", place.scratch_folder(attempt.id), str(first), workdir, terminal
    )


def has_container_files(place: ContainerPaths, attempt_id: AttemptId) -> bool:
    """Or something of one that is over."""
    return os.path.lexists(place.scratch_folder(attempt_id)) or os.path.lexists(
        f"{place.runtime_folder}/{attempt_id}"
    )


def _confinement(attempt: Attempt, person: RunAsUser, place: ContainerPaths) -> ContainerIsolation:
    settings = place.settings
    store, scratch, run = _rooms(attempt, person, place)
    named = settings.containers.oci_runtimes.get(attempt.job.project) or settings.containers.oci_runtime
    return ContainerIsolation(
        image_store=store,
        scratch_folder=scratch,
        runtime_folder=run,
        read_only_root=settings.containers.read_only_root,
        oci_runtime=named or _usual_oci_runtime(),
        cgroup_parent=f"/heliostat-{place.instance}/{attempt.id}" if os.geteuid() == 0 else None,
        device_files=place.device_files or (),
        tool_variables={
            name: file if os.path.exists(file) else os.devnull for name, file in CONTAINER_CONFIG_FILES.items()
        },
    )


def _rooms(attempt: Attempt, person: RunAsUser, place: ContainerPaths) -> tuple[str, str, str]:
    """For the person's images, for what is written on top of them, and for the notes of the tool."""
    images = place.settings.home.images
    return f"{images}/{person.name}", place.scratch_folder(attempt.id), f"{place.runtime_folder}/{attempt.id}"


def _make_rooms(attempt: Attempt, person: RunAsUser, place: ContainerPaths) -> None:
    _make_shared(str(place.settings.home.images))
    _make_shared(place.runtime_folder)
    for folder in _rooms(attempt, person, place):
        make_private_folder(folder, person)


def _container(
    attempt: Attempt, person: RunAsUser, places: PayloadContext, place: ContainerPaths
) -> ContainerSpec:
    """As if it had one task, with all its devices."""
    wanted, settings = attempt.job.resources, place.settings
    brought = ContainerInputs(
        places.workdir, places.checkpoint_folder, places.script_path, base_variables(attempt, person, places)
    )
    limits = ContainerLimits(
        wanted.memory_mib,
        wanted.cpus,
        settings.queue.pids_limit,
        open_files=getrlimit(RLIMIT_NOFILE)[1],
        processes=_most_processes(),
    )
    ground = ContainerContext(settings, limits, _confinement(attempt, person, place))
    made = make_container_spec(attempt, person, brought, ground)
    return replace(made, devices=() if place.device_files is None else attempt.devices)


def _tasks(whole: ContainerSpec, attempt: Attempt) -> list[ContainerSpec]:
    if not starts_each_task(attempt):
        return [whole]
    return [
        replace(
            whole,
            variables=replace(whole.variables, per_task=task_variables(one, rank)),
            devices=one.devices if whole.devices else (),
        )
        for rank, one in enumerate(attempt.places)
    ]


def _most_processes() -> int:
    """Podman gives itself no more than the kernel has numbers for, and nobody after it may have more."""
    numbers, limit = _process_numbers(), getrlimit(RLIMIT_NPROC)[1]
    return numbers if limit < 0 else min(numbers, limit)


@cache
def _process_numbers() -> int:
    return int(Path("/proc/sys/kernel/pid_max").read_text())


@cache
def _usual_oci_runtime() -> str:
    """Of the two, only crun leaves a container in the cgroup it is started in; it needs cgroup v2."""
    is_v2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
    return "crun" if is_v2 and shutil.which("crun", path=TOOL_PATH) else "runc"


def _check_sub_ids(person: RunAsUser) -> None:
    if person.uid == 0:
        return
    with contextlib.suppress(OSError):
        if "subid:" in Path("/etc/nsswitch.conf").read_text():
            return
        owners = {line.split(":")[0] for line in Path("/etc/subuid").read_text().splitlines()}
        if not owners & {person.name, str(person.uid)}:
            raise AttemptRefused(
                f"podman needs a range of user numbers for {person.name}, and /etc/subuid has none; an admin "
                "can add one: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 "
                f"{person.name} (numbers nobody else has)"
            )


def _make_shared(folder: str) -> None:
    """The server's own; others may pass through."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    found = os.lstat(folder)
    if found.st_uid != os.geteuid() or not os.path.isdir(folder) or os.path.islink(folder):
        raise AttemptRefused(f"{folder} belongs to somebody else")
    os.chmod(folder, 0o711)


def _remove(folder: str) -> None:
    """Never through a mount: what is mounted there may be somebody's home."""
    for mounted in _mounted_below(folder):
        subprocess.run(["umount", "--lazy", mounted], check=False, capture_output=True)
    if _mounted_below(folder):
        return
    shutil.rmtree(folder, ignore_errors=True)
    if os.path.lexists(folder) and os.geteuid() != 0:  # files of the container's other users
        words = ["unshare", "--map-auto", "--map-root-user", "rm", "-rf", "--", folder]
        subprocess.run(words, check=False, capture_output=True)


def _mounted_below(folder: str) -> list[str]:
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    points = [line.split(" ")[1].replace("\\040", " ") for line in lines]
    return sorted((point for point in points if point.startswith(f"{folder}/")), reverse=True)


def _remove_groups(name: str) -> None:
    """With cgroup v1, a tool that is root makes some in hierarchies that are none of ours."""
    for top in Path("/sys/fs/cgroup").glob(f"*/{name}"):
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def signal_container(group: Cgroup, signal_number: int) -> None:
    """To what runs in it, not to the tools that hold it; to everything, as long as nothing runs inside yet.

    A tool that dies of a signal takes the container along, or loses its exit code. Who is inside has a process
    number there too; the first one inside only looks after the others, and hands on what it is told.
    """
    if _insiders(group.pids()):
        signal_all(lambda: _insiders(group.pids()), signal_number)
    else:
        group.signal(signal_number)


def container_init_pids(pids: Iterable[int]) -> Iterator[int]:
    """Of each container, its first process."""
    return (pid for pid in sorted(pids) if len(numbers := _numbers(pid)) > 1 and numbers[-1] == "1")


def _insiders(pids: list[int]) -> list[int]:
    return [pid for pid in pids if len(numbers := _numbers(pid)) > 1 and numbers[-1] != "1"]


def _numbers(pid: int) -> list[str]:
    """That it has: here, and in each namespace below that it is in."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return next((line.split()[1:] for line in file if line.startswith("NSpid:")), [])
    except OSError:
        return []
