"""Podman runtime: containers without a daemon, as the job's user.

Each attempt has its own store for what it writes, on top of the user's images. So a killed container cannot affect
others, and cleanup means removing a folder.
"""

import re
from collections.abc import Iterator
from shlex import quote

from heliostat.runtimes import oci_options
from heliostat.runtimes.contract import (
    TOOL_PATH,
    ContainerIsolation,
    ContainerSpec,
    ContainerTask,
    RuntimeCommand,
    UnsupportedByRuntime,
)
from heliostat.runtimes.image_stores import image_lock_path
from heliostat.runtimes.oci_options import format_env_file, split_variables

_PROGRAM = "podman"
_WITHOUT_CGROUPS = frozenset({"crun", "krun"})  # they can run a container in the cgroup in which they are started
# A user's own registry configuration could redirect names of allowed registries. Their logins are kept.
IGNORE_USER_CONFIG_LINES = """\
own=$HOME/.config/containers
if [ -e "$own/registries.conf.d" ] || [ -e "$own/registries.d" ] || [ -e "$own/certs.d" ]; then
    mkdir -p "$run/home/.config/containers"
    ln -sfn "$own/auth.json" "$run/home/.config/containers/auth.json"
    ln -sfn "$HOME/.docker" "$run/home/.docker"
    export HOME="$run/home"
fi
"""
FETCH_IMAGE_SCRIPT = f"""\
store=$1 run=$2 image=$3 archive=$4 digest_file=$5
{IGNORE_USER_CONFIG_LINES}\
in_store() {{
    podman --root="$store" --runroot="$run/i" --tmpdir="$run/j" --storage-driver=overlay \\
        --log-level=error "$@"
}}
rm -rf "$store/libpod" # the podman database holds the paths of the previous run, and rejects other ones
in_store image exists "$image" && exit
[ -z "$archive" ] || {{ in_store load --quiet --input "$archive" >/dev/null; exit; }}
echo "heliostat: fetching $image" >&2
output=$(in_store pull --quiet --signature-policy=/etc/containers/policy.json "$image" 2>&1 >/dev/null) && exit
printf '%s\\n' "$output" >&2
[ -z "$digest_file" ] || {{ echo "failed $image"; printf %s "$output" | tail -c 2000; }} >"$digest_file"
exit 125
"""


class Podman:
    name = "podman"
    needs_image = True
    program = _PROGRAM

    def make_command(self, spec: ContainerSpec) -> RuntimeCommand:
        task, isolation = spec.task, spec.isolation
        if task.image is None:
            raise UnsupportedByRuntime("podman needs an image")
        exported, sealed_variables = split_variables(spec.variables.common)
        sealed = format_env_file(sealed_variables)
        argv = (
            *_podman(isolation),
            "run",
            "--rm",
            "--init",  # forwards signals and reaps children
            "--pull=never",
            "--log-driver=passthrough",  # into the job's log files
            "--http-proxy=false",
            "--systemd=false",
            f"--ulimit=nofile={spec.limits.open_files}:{spec.limits.open_files}",
            f"--ulimit=nproc={spec.limits.processes}:{spec.limits.processes}",
            "--security-opt=label=disable",
            *_namespaces(task, isolation),
            *oci_options.root_filesystem_options(isolation),
            *oci_options.container_options(spec),
            *oci_options.variable_options(list(exported), sealed, spec.variables.per_task),
            "--",
            task.image,
            *task.argv,
        )
        tools = {"PATH": TOOL_PATH, "HOME": task.user.home, "XDG_RUNTIME_DIR": isolation.runtime_folder}
        return RuntimeCommand(
            argv,
            exported | tools | dict(isolation.tool_variables),
            sealed_content=sealed,
            setup_line=_setup(task, task.image, isolation),
            lock_file=image_lock_path(isolation.image_store, task.image),
        )


def _podman(isolation: ContainerIsolation) -> Iterator[str]:
    yield _PROGRAM
    yield f"--root={isolation.scratch_folder}"
    yield f"--runroot={isolation.runtime_folder}/c"
    yield f"--tmpdir={isolation.runtime_folder}/t"
    yield "--storage-driver=overlay"
    yield f"--storage-opt=additionalimagestore={isolation.image_store}"
    yield "--cgroup-manager=cgroupfs"
    yield "--events-backend=none"
    yield "--log-level=error"
    yield f"--runtime={isolation.oci_runtime}"


def _namespaces(task: ContainerTask, isolation: ContainerIsolation) -> Iterator[str]:
    """All processes stay in the cgroup of the attempt, or in one below it if the tool must create one."""
    is_root = task.user.is_root
    if isolation.oci_runtime.rsplit("/", 1)[-1] in _WITHOUT_CGROUPS:
        yield "--cgroups=disabled"
        yield "--group-add=keep-groups"
    else:
        yield "--cgroups=no-conmon"
        if is_root and isolation.cgroup_parent:
            yield f"--cgroup-parent={isolation.cgroup_parent}"
    if not is_root:
        yield "--userns=keep-id"
    private = "bridge" if is_root else "slirp4netns"
    yield f"--network={private if task.network == 'private' else task.network}"


def _setup(task: ContainerTask, image: str, isolation: ContainerIsolation) -> str:
    return f"{{ {_ensure_image(task, image, isolation)}; }} && {{ {_speedups(isolation)}; true; }}"


def _ensure_image(task: ContainerTask, image: str, isolation: ContainerIsolation) -> str:
    """Fetch the image unless the store's index lists it; a lock avoids double downloads."""
    words = ["flock", "-o", f"{isolation.image_store}/lock", "/bin/sh", "-c", FETCH_IMAGE_SCRIPT, "fetch"]
    words += [
        isolation.image_store,
        isolation.runtime_folder,
        image,
        task.image_archive or "",
        task.digest_file or "",
    ]
    fetch, find_digest = " ".join(map(quote, words)), _digest(image, isolation)
    if task.digest_file is None:
        return f"{find_digest} >/dev/null || {fetch}"
    write_digest = f"{find_digest} >{quote(task.digest_file)}"
    return f"{write_digest} || {{ {fetch} && {{ {write_digest}; true; }}; }}"


def _speedups(isolation: ContainerIsolation) -> str:
    """Saves a third of podman's start time by two links.

    Podman's database is useless without the container, so it is placed in the runtime folder, which is in memory.
    To detect overlay features of the kernel, podman makes half a dozen mounts and stores the result in each store:
    here all stores of a user share the result of the first since the boot.
    """
    features, run = quote(f"{isolation.image_store}/features/"), quote(isolation.runtime_folder)
    read = "read -r heliostat_boot </proc/sys/kernel/random/boot_id"
    make = f'mkdir -p {features}"$heliostat_boot" {run}/c {run}/d'
    scratch = quote(isolation.scratch_folder)
    link = f'ln -s {run}/d {scratch}/libpod; ln -s {features}"$heliostat_boot" {run}/c/overlay'
    return f"[ -e {run}/c/overlay ] || {{ {read} && {make} && {{ {link}; }}; }}"


def _digest(image: str, isolation: ContainerIsolation) -> str:
    """The shell command that prints an image's digest from the store's index; podman would be slow."""
    index, name = (
        quote(f"{isolation.image_store}/overlay-images/images.json"),
        re.sub(r"[^\w/:@-]", r"[\g<0>]", image),
    )
    facts = quote(rf'("digest":"sha256:[0-9a-f]{{64}}",)?"names":\[[^]]*"{name}"')
    return f"grep -osE -m 1 -- {facts} {index}"
