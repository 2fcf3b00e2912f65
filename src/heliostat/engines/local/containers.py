"""Containers of the local engine: their folders and commands, signals to them, and cleanup after them."""

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
from heliostat.engines.local.cgroup_files import remove_folder as remove_cgroup
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
from heliostat.server_log import get_logger
from heliostat.untrusted_folders import remove_folder, unmount_below

log = get_logger()


@dataclass(frozen=True, slots=True)
class ContainerPaths:
    """Folders of the containers of this installation."""

    settings: Settings
    instance: str
    device_files: tuple[str, ...] | None = None  # of its GPUs; None: the GPUs are simulated

    def scratch_folder(self, attempt_id: AttemptId) -> str:
        job, _, number = attempt_id.partition(".")
        return f"{JobFolder.for_job(self.settings.home.jobs, int(job)).path}/{number}.container"

    @property
    def runtime_folder(self) -> str:
        return container_runtime_folder(self.instance)


def installation_id(home: Home) -> str:
    """Identifies this installation among others on the machine."""
    return hashlib.sha256(str(home.path).encode()).hexdigest()[:8]


def make_tool_folder(home: Home, run_as: RunAsUser) -> str:
    """The runtime folder of a tool that runs for this user outside of attempts. It is named like an attempt that
    cannot exist, so leftovers are cleaned up like those of attempts."""
    runs = container_runtime_folder(installation_id(home))
    _make_shared(runs)
    make_private_folder(folder := f"{runs}/0.{run_as.uid}", run_as)
    return folder


def make_container_commands(
    attempt: Attempt, run_as: RunAsUser, context: PayloadContext, paths: ContainerPaths
) -> tuple[RuntimeCommand, ...]:
    """One command for each task. Raises AttemptRefused."""
    runtime = RUNTIMES[attempt.job.spec.runtime or paths.settings.containers.default_runtime]
    if runtime.program and shutil.which(runtime.program, path=TOOL_PATH) is None:
        raise AttemptRefused(
            f"{runtime.program} is not installed on this node, and the runtime {runtime.name} needs it"
        )
    if runtime.name == "podman":
        _check_sub_ids(run_as)
    try:
        full_spec = _container(attempt, run_as, context, paths)
        if runtime.needs_image:  # other runtimes write nothing to disk
            _make_folders(attempt, run_as, paths)
        return tuple(map(runtime.make_command, _tasks(full_spec, attempt)))
    except (UnsupportedByRuntime, Invalid) as error:
        raise AttemptRefused(str(error)) from None


def make_tool_variables(attempt: Attempt, run_as: RunAsUser, paths: ContainerPaths) -> dict[str, str]:
    """Podman's folders for jobs that build or push an image; empty for other jobs. They are removed with the
    attempt, like those of containers. Raises AttemptRefused."""
    if attempt.job.kind not in (IMAGE_BUILD_JOB, IMAGE_PUSH_JOB):
        return {}
    if shutil.which("podman", path=TOOL_PATH) is not None:
        _check_sub_ids(run_as)
    _make_folders(attempt, run_as, paths)
    store, scratch, run = _folders(attempt, run_as, paths)
    return {"HELIOSTAT_TOOL_STORE": store, "HELIOSTAT_TOOL_SCRATCH": scratch, "HELIOSTAT_TOOL_RUN": run}


def remove_container_files(paths: ContainerPaths, attempt_ids: Collection[AttemptId]) -> None:
    """Remove what containers of ended attempts wrote outside their mounts, and files of the tools."""
    for attempt_id in attempt_ids:
        for folder in (paths.scratch_folder(attempt_id), f"{paths.runtime_folder}/{attempt_id}"):
            try:
                _remove(folder)
            except OSError as error:
                log.warning("container_files_not_removed", folder=folder, error=str(error))
        _remove_groups(f"heliostat-{paths.instance}/{attempt_id}")


def find_orphaned_containers(paths: ContainerPaths, kept: Collection[AttemptId]) -> list[AttemptId]:
    """Attempts of an earlier run of Heliostat that were not cleaned up."""
    with contextlib.suppress(OSError):
        return [name for name in os.listdir(paths.runtime_folder) if name not in kept]
    return []


def make_cgroups_readable(enter_files: Collection[str]) -> None:
    """The cgroups are visible inside the container, so its user must be able to read them."""
    for file in enter_files:
        group = os.path.dirname(file)
        os.chmod(group, 0o755)
        os.chmod(os.path.dirname(group), 0o711)


def remove_empty_folders(paths: ContainerPaths) -> None:
    """Remove the folders of the installation that are empty."""
    for folder in (paths.runtime_folder, *map(str, Path("/sys/fs/cgroup").glob(f"*/heliostat-{paths.instance}"))):
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def find_exec_target(paths: ContainerPaths, attempt: Attempt, pids: Iterable[int], terminal: str) -> ExecTarget:
    """The container to enter; if there are several, the first. Raises AttemptRefused."""
    first = next(container_init_pids(pids), None)
    if first is None:
        raise AttemptRefused("no process runs in its container")
    workdir = (
        attempt.job.spec.workdir or f"{JobFolder.for_job(paths.settings.home.jobs, attempt.job.id).path}/work"
    )
    _make_shared(paths.runtime_folder)
    make_private_folder(f"{paths.runtime_folder}/{attempt.id}", require_run_as_user(attempt.job.unix_user))
    return ExecTarget(
        f"{paths.runtime_folder}/{attempt.id}", paths.scratch_folder(attempt.id), str(first), workdir, terminal
    )


def has_container_files(paths: ContainerPaths, attempt_id: AttemptId) -> bool:
    """Whether the attempt has, or had, a container that is not cleaned up."""
    return os.path.lexists(paths.scratch_folder(attempt_id)) or os.path.lexists(
        f"{paths.runtime_folder}/{attempt_id}"
    )


def _isolation(attempt: Attempt, run_as: RunAsUser, paths: ContainerPaths) -> ContainerIsolation:
    settings = paths.settings
    store, scratch, run = _folders(attempt, run_as, paths)
    configured = settings.containers.oci_runtimes.get(attempt.job.project) or settings.containers.oci_runtime
    return ContainerIsolation(
        image_store=store,
        scratch_folder=scratch,
        runtime_folder=run,
        read_only_root=settings.containers.read_only_root,
        oci_runtime=configured or _default_oci_runtime(),
        cgroup_parent=f"/heliostat-{paths.instance}/{attempt.id}" if os.geteuid() == 0 else None,
        device_files=paths.device_files or (),
        tool_variables={
            name: file if os.path.exists(file) else os.devnull for name, file in CONTAINER_CONFIG_FILES.items()
        },
    )


def _folders(attempt: Attempt, run_as: RunAsUser, paths: ContainerPaths) -> tuple[str, str, str]:
    """Image store of the user, scratch folder and runtime folder of the attempt."""
    images = paths.settings.home.images
    return f"{images}/{run_as.name}", paths.scratch_folder(attempt.id), f"{paths.runtime_folder}/{attempt.id}"


def _make_folders(attempt: Attempt, run_as: RunAsUser, paths: ContainerPaths) -> None:
    _make_shared(str(paths.settings.home.images))
    _make_shared(paths.runtime_folder)
    for folder in _folders(attempt, run_as, paths):
        make_private_folder(folder, run_as)


def _container(
    attempt: Attempt, run_as: RunAsUser, context: PayloadContext, paths: ContainerPaths
) -> ContainerSpec:
    """The specification for one task, with all devices."""
    resources, settings = attempt.job.resources, paths.settings
    inputs = ContainerInputs(
        context.workdir, context.checkpoint_folder, context.script_path, base_variables(attempt, run_as, context)
    )
    limits = ContainerLimits(
        resources.memory_mib,
        resources.cpus,
        settings.queue.pids_limit,
        open_files=getrlimit(RLIMIT_NOFILE)[1],
        processes=_max_processes(),
    )
    container_context = ContainerContext(settings, limits, _isolation(attempt, run_as, paths))
    spec = make_container_spec(attempt, run_as, inputs, container_context)
    return replace(spec, devices=() if paths.device_files is None else attempt.devices)


def _tasks(full_spec: ContainerSpec, attempt: Attempt) -> list[ContainerSpec]:
    if not starts_each_task(attempt):
        return [full_spec]
    return [
        replace(
            full_spec,
            variables=replace(full_spec.variables, per_task=task_variables(placement, rank)),
            devices=placement.devices if full_spec.devices else (),
        )
        for rank, placement in enumerate(attempt.places)
    ]


def _max_processes() -> int:
    """Podman limits itself to the kernel's pid_max, and its children cannot have a higher limit."""
    numbers, limit = _process_numbers(), getrlimit(RLIMIT_NPROC)[1]
    return numbers if limit < 0 else min(numbers, limit)


@cache
def _process_numbers() -> int:
    return int(Path("/proc/sys/kernel/pid_max").read_text())


@cache
def _default_oci_runtime() -> str:
    """Of the two, only crun keeps a container in the cgroup in which it is started; it needs cgroup v2."""
    is_v2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
    return "crun" if is_v2 and shutil.which("crun", path=TOOL_PATH) else "runc"


def _check_sub_ids(run_as: RunAsUser) -> None:
    if run_as.uid == 0:
        return
    with contextlib.suppress(OSError):
        if "subid:" in Path("/etc/nsswitch.conf").read_text():
            return
        owners = {line.split(":")[0] for line in Path("/etc/subuid").read_text().splitlines()}
        if not owners & {run_as.name, str(run_as.uid)}:
            raise AttemptRefused(
                f"podman needs a range of subordinate user ids for {run_as.name}, and /etc/subuid has none; "
                "an admin can add one: usermod --add-subuids 100000-165535 --add-subgids 100000-165535 "
                f"{run_as.name} (a range that no other user has)"
            )


def _make_shared(folder: str) -> None:
    """A folder of the server that other users may pass through but not list."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    status = os.lstat(folder)
    if status.st_uid != os.geteuid() or not os.path.isdir(folder) or os.path.islink(folder):
        raise AttemptRefused(f"{folder} belongs to another user")
    os.chmod(folder, 0o711)


def _remove(folder: str) -> None:
    """Never removes files through a mount, which could be a user's home."""
    unmount_below(folder)
    try:
        remove_folder(folder)
    except OSError:
        if os.geteuid() == 0:
            raise
        # Without root, files of other users inside the container can only be removed in their user namespace.
        argv = ["unshare", "--map-auto", "--map-root-user", "rm", "-rf", "--", folder]
        subprocess.run(argv, check=False, capture_output=True)


def _remove_groups(name: str) -> None:
    """With cgroup v1, a tool that runs as root creates cgroups in hierarchies that we do not use."""
    for top in Path("/sys/fs/cgroup").glob(f"*/{name}"):
        with contextlib.suppress(OSError):
            remove_cgroup(str(top))


def signal_container(group: Cgroup, signal_number: int) -> None:
    """Signal the processes inside the container, not the container tools; all processes if none runs inside yet.

    A tool that is killed by a signal kills the container or loses its exit code. A process inside has a pid in the
    container too. The first process inside is only the init, which forwards signals.
    """
    if _pids_inside(group.pids()):
        signal_all(lambda: _pids_inside(group.pids()), signal_number)
    else:
        group.signal(signal_number)


def container_init_pids(pids: Iterable[int]) -> Iterator[int]:
    """The first process of each container."""
    return (pid for pid in sorted(pids) if len(numbers := _namespace_pids(pid)) > 1 and numbers[-1] == "1")


def _pids_inside(pids: list[int]) -> list[int]:
    return [pid for pid in pids if len(numbers := _namespace_pids(pid)) > 1 and numbers[-1] != "1"]


def _namespace_pids(pid: int) -> list[str]:
    """The pids of the process: here, and in each pid namespace below."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return next((line.split()[1:] for line in file if line.startswith("NSpid:")), [])
    except OSError:
        return []
