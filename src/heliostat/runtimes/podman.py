"""Containers without a daemon, as the job's user.

Each attempt has a store of its own for what it writes, on top of the user's images: whatever is killed at any
moment leaves no trace that another container could stumble over, and to clean up is to remove a folder.
"""

import re
from collections.abc import Iterator
from shlex import quote

from heliostat.runtimes import oci
from heliostat.runtimes.contract import (
    TOOL_PATH,
    CannotContain,
    Command,
    Confinement,
    Container,
    Task,
)
from heliostat.runtimes.image_stores import in_use
from heliostat.runtimes.oci import as_lines, split

_PROGRAM = "podman"
_WITHOUT_CGROUPS = frozenset({"crun", "krun"})  # that can run a container in the cgroup it is started in
# What somebody has set for themselves would lead names of allowed registries elsewhere. Their logins stay.
WITHOUT_OWN_SETTINGS = """\
own=$HOME/.config/containers
if [ -e "$own/registries.conf.d" ] || [ -e "$own/registries.d" ] || [ -e "$own/certs.d" ]; then
    mkdir -p "$run/home/.config/containers"
    ln -sfn "$own/auth.json" "$run/home/.config/containers/auth.json"
    ln -sfn "$HOME/.docker" "$run/home/.docker"
    export HOME="$run/home"
fi
"""
FETCH = f"""\
store=$1 run=$2 image=$3 archive=$4 noted=$5
{WITHOUT_OWN_SETTINGS}\
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
    takes_images = True
    program = _PROGRAM

    def command(self, asked: Container) -> Command:
        task, confinement = asked.task, asked.confinement
        if task.image is None:
            raise CannotContain("podman needs an image")
        exported, heeded = split(asked.environment.common)
        sealed = as_lines(heeded)
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
            *oci.root(confinement),
            *oci.inside(asked),
            *oci.variables(list(exported), sealed, asked.environment.of_task),
            "--",
            task.image,
            *task.argv,
        )
        tools = {"PATH": TOOL_PATH, "HOME": task.identity.home, "XDG_RUNTIME_DIR": confinement.run}
        return Command(
            argv,
            exported | tools | dict(confinement.tool_environment),
            sealed=sealed,
            before=_before(task, task.image, confinement),
            holds=in_use(confinement.store, task.image),
        )


def _podman(confinement: Confinement) -> Iterator[str]:
    yield _PROGRAM
    yield f"--root={confinement.scratch}"
    yield f"--runroot={confinement.run}/c"
    yield f"--tmpdir={confinement.run}/t"
    yield "--storage-driver=overlay"
    yield f"--storage-opt=additionalimagestore={confinement.store}"
    yield "--cgroup-manager=cgroupfs"
    yield "--events-backend=none"
    yield "--log-level=error"
    yield f"--runtime={confinement.oci_runtime}"


def _namespaces(task: Task, confinement: Confinement) -> Iterator[str]:
    """Everything stays in the cgroup of the attempt, whose limits hold; where the tool must make one, below it."""
    is_root = task.identity.is_root
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


def _before(task: Task, image: str, confinement: Confinement) -> str:
    return f"{{ {_there(task, image, confinement)}; }} && {{ {_quick_notes(confinement)}; true; }}"


def _there(task: Task, image: str, confinement: Confinement) -> str:
    """Usually one look into a file, which finds its digest. Who waits for another's download finds it done."""
    words = ["flock", "-o", f"{confinement.store}/lock", "/bin/sh", "-c", FETCH, "fetch"]
    words += [confinement.store, confinement.run, image, task.archive or "", task.digest_file or ""]
    fetch, look = " ".join(map(quote, words)), _digest(image, confinement)
    if task.digest_file is None:
        return f"{look} >/dev/null || {fetch}"
    note = f"{look} >{quote(task.digest_file)}"
    return f"{note} || {{ {fetch} && {{ {note}; true; }}; }}"


def _quick_notes(confinement: Confinement) -> str:
    """Spares podman two things that take it as long as half of the rest.

    Its database is worth nothing without the container, so it is kept with what does not outlive a boot, where
    nothing has to reach a disk. What the kernel can do with overlays, it finds out by half a dozen mounts and
    keeps beside each store: all of a person share what the first has found since the boot.
    """
    known, run = quote(f"{confinement.store}/features/"), quote(confinement.run)
    read = "read -r heliostat_boot </proc/sys/kernel/random/boot_id"
    make = f'mkdir -p {known}"$heliostat_boot" {run}/c {run}/d'
    link = f'ln -s {run}/d {quote(confinement.scratch)}/libpod; ln -s {known}"$heliostat_boot" {run}/c/overlay'
    return f"[ -e {run}/c/overlay ] || {{ {read} && {make} && {{ {link}; }}; }}"


def _digest(image: str, confinement: Confinement) -> str:
    """What the store says the image is. To ask podman would take as long as a small job."""
    known, name = quote(f"{confinement.store}/overlay-images/images.json"), re.sub(r"[^\w/:@-]", r"[\g<0>]", image)
    facts = quote(rf'("digest":"sha256:[0-9a-f]{{64}}",)?"names":\[[^]]*"{name}"')
    return f"grep -osE -m 1 -- {facts} {known}"
