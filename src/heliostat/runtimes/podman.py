"""Containers without a daemon, as the job's user.

Each attempt has a store of its own for what it writes, on top of the user's images: whatever is killed at any
moment leaves no trace that another container could stumble over, and to clean up is to remove a folder.
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
_WITHOUT_CGROUPS = frozenset({"crun", "krun"})  # that can run a container in the cgroup it is started in
# What somebody has set for themselves would lead names of allowed registries elsewhere. Their logins stay.
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
store=$1 run=$2 image=$3 archive=$4 noted=$5
{IGNORE_USER_CONFIG_LINES}\
in_store() {{
    podman --root="$store" --runroot="$run/i" --tmpdir="$run/j" --storage-driver=overlay \\
        --log-level=error "$@"
}}
rm -rf "$store/libpod" # knows where the run before kept its things, and minds that this one keeps them elsewhere
in_store image exists "$image" && exit
[ -z "$archive" ] || {{ in_store load --quiet --input "$archive" >/dev/null; exit; }}
echo "heliostat: fetching $image" >&2
said=$(in_store pull --quiet --signature-policy=/etc/containers/policy.json "$image" 2>&1 >/dev/null) && exit
printf '%s\\n' "$said" >&2
[ -z "$noted" ] || {{ echo "failed $image"; printf %s "$said" | tail -c 2000; }} >"$noted"
exit 125
"""


class Podman:
    name = "podman"
    needs_image = True
    program = _PROGRAM

    def make_command(self, asked: ContainerSpec) -> RuntimeCommand:
        task, confinement = asked.task, asked.isolation
        if task.image is None:
            raise UnsupportedByRuntime("podman needs an image")
        exported, heeded = split_variables(asked.variables.common)
        sealed = format_env_file(heeded)
        argv = (
            *_podman(confinement),
            "run",
            "--rm",
            "--init",  # what it starts gets its signals, and is reaped
            "--pull=never",
            "--log-driver=passthrough",  # into the job's own log files
            "--http-proxy=false",
            "--systemd=false",
            f"--ulimit=nofile={asked.limits.open_files}:{asked.limits.open_files}",
            f"--ulimit=nproc={asked.limits.processes}:{asked.limits.processes}",
            "--security-opt=label=disable",
            *_namespaces(task, confinement),
            *oci_options.root_filesystem_options(confinement),
            *oci_options.container_options(asked),
            *oci_options.variable_options(list(exported), sealed, asked.variables.per_task),
            "--",
            task.image,
            *task.argv,
        )
        tools = {"PATH": TOOL_PATH, "HOME": task.user.home, "XDG_RUNTIME_DIR": confinement.runtime_folder}
        return RuntimeCommand(
            argv,
            exported | tools | dict(confinement.tool_variables),
            sealed_content=sealed,
            setup_line=_before(task, task.image, confinement),
            lock_file=image_lock_path(confinement.image_store, task.image),
        )


def _podman(confinement: ContainerIsolation) -> Iterator[str]:
    yield _PROGRAM
    yield f"--root={confinement.scratch_folder}"
    yield f"--runroot={confinement.runtime_folder}/c"
    yield f"--tmpdir={confinement.runtime_folder}/t"
    yield "--storage-driver=overlay"
    yield f"--storage-opt=additionalimagestore={confinement.image_store}"
    yield "--cgroup-manager=cgroupfs"
    yield "--events-backend=none"
    yield "--log-level=error"
    yield f"--runtime={confinement.oci_runtime}"


def _namespaces(task: ContainerTask, confinement: ContainerIsolation) -> Iterator[str]:
    """Everything stays in the cgroup of the attempt, whose limits hold; where the tool must make one, below it."""
    is_root = task.user.is_root
    if confinement.oci_runtime.rsplit("/", 1)[-1] in _WITHOUT_CGROUPS:
        yield "--cgroups=disabled"
        yield "--group-add=keep-groups"
    else:
        yield "--cgroups=no-conmon"
        if is_root and confinement.cgroup_parent:
            yield f"--cgroup-parent={confinement.cgroup_parent}"
    if not is_root:
        yield "--userns=keep-id"
    private = "bridge" if is_root else "slirp4netns"
    yield f"--network={private if task.network == 'private' else task.network}"


def _before(task: ContainerTask, image: str, confinement: ContainerIsolation) -> str:
    return f"{{ {_there(task, image, confinement)}; }} && {{ {_quick_notes(confinement)}; true; }}"


def _there(task: ContainerTask, image: str, confinement: ContainerIsolation) -> str:
    """Usually one look into a file, which finds its digest. Who waits for another's download finds it done."""
    words = ["flock", "-o", f"{confinement.image_store}/lock", "/bin/sh", "-c", FETCH_IMAGE_SCRIPT, "fetch"]
    words += [
        confinement.image_store,
        confinement.runtime_folder,
        image,
        task.image_archive or "",
        task.digest_file or "",
    ]
    fetch, look = " ".join(map(quote, words)), _digest(image, confinement)
    if task.digest_file is None:
        return f"{look} >/dev/null || {fetch}"
    note = f"{look} >{quote(task.digest_file)}"
    return f"{note} || {{ {fetch} && {{ {note}; true; }}; }}"


def _quick_notes(confinement: ContainerIsolation) -> str:
    """Spares podman two things that take it as long as half of the rest.

    Its database is worth nothing without the container, so it is kept with what does not outlive a boot, where
    nothing has to reach a disk. What the kernel can do with overlays, it finds out by half a dozen mounts and
    keeps beside each store: all of a person share what the first has found since the boot.
    """
    known, run = quote(f"{confinement.image_store}/features/"), quote(confinement.runtime_folder)
    read = "read -r heliostat_boot </proc/sys/kernel/random/boot_id"
    make = f'mkdir -p {known}"$heliostat_boot" {run}/c {run}/d'
    link = (
        f'ln -s {run}/d {quote(confinement.scratch_folder)}/libpod; ln -s {known}"$heliostat_boot" {run}/c/overlay'
    )
    return f"[ -e {run}/c/overlay ] || {{ {read} && {make} && {{ {link}; }}; }}"


def _digest(image: str, confinement: ContainerIsolation) -> str:
    """What the store says the image is. To ask podman would take as long as a small job."""
    known, name = (
        quote(f"{confinement.image_store}/overlay-images/images.json"),
        re.sub(r"[^\w/:@-]", r"[\g<0>]", image),
    )
    facts = quote(rf'("digest":"sha256:[0-9a-f]{{64}}",)?"names":\[[^]]*"{name}"')
    return f"grep -osE -m 1 -- {facts} {known}"
