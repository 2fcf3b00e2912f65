"""Image builds and pushes: the shell scripts that run podman or apptainer. Pure text.

Both run as the user, with a podman store that is removed with the attempt, so a killed build leaves no partial
image. A build reuses layers of the user's earlier builds, from a store that jobs do not use. The script runs in
the working directory of its job and leaves `room/env/image.tar` (apptainer: `image.sif`), a push `digest`; or in
`why` the last output of the failed step.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shlex import join, quote

from heliostat.models.images import IMAGE_ARCHIVE_FILE, SIF_FILE
from heliostat.runtimes.contract import SEALED_DESCRIPTOR, SEALED_PATH, TOOL_PATH
from heliostat.runtimes.podman import FETCH_IMAGE_SCRIPT, IGNORE_USER_CONFIG_LINES

_CONTEXT = ".heliostat-context"
_SIGNATURES = "--signature-policy=/etc/containers/policy.json"  # the node's policy, not the user's


@dataclass(frozen=True, slots=True)
class ImageRecipe:
    """Inputs of an image build."""

    kind: str  # image, definition
    name: str  # full name of the image
    text: str  # of the Containerfile or the definition file
    files: tuple[tuple[str, str], ...] = ()  # name and text of files that it copies
    has_context: bool = False  # the files that it copies are in the working directory
    bases: tuple[str, ...] = ()  # base images, as far as they are known


@dataclass(frozen=True, slots=True)
class ImagePushInputs:
    """Inputs of an image push."""

    name: str
    archive: str
    target: str  # full name in the registry
    # The folder with the file `login`, which is removed once it is read. None: the user's own logins are used.
    login_folder: str | None


def render_image_build(recipe: ImageRecipe, base: str) -> str:
    """`base`: prefix of each user's folder on a node, for engines that do not create one per attempt."""
    steps = _by_podman(recipe, base) if recipe.kind == "image" else _by_apptainer(recipe)
    lines = [
        "#!/bin/sh",
        _functions(),
        f"export PATH={quote(TOOL_PATH)}",
        *(_move_context() if recipe.has_context else ()),
        "rm -rf room why output code && mkdir -p room/env room/context && cd room || exit 1",
        *(f"printf %s {quote(text)} > context/{quote(name)}" for name, text in recipe.files),
        *steps,
        f"rm -rf ../{_CONTEXT}",
        "echo 'The image is ready.'",
    ]
    return "\n".join(lines) + "\n"


def render_image_push(inputs: ImagePushInputs, base: str) -> str:
    login = () if inputs.login_folder is None else _open_login(inputs.login_folder)
    auth = () if inputs.login_folder is None else (f"--authfile={SEALED_PATH}",)
    lines = [
        "#!/bin/sh",
        _functions(),
        f"export PATH={quote(TOOL_PATH)}",
        "rm -rf room why output code digest && mkdir room && cd room || exit 1",
        *login,
        f"enter {quote(base)}",
        f"run_step in_root load --quiet --input {quote(inputs.archive)} || fail",
        f"run_step in_root push {join(['--digestfile=../digest', *auth])} "
        f"{quote(inputs.name)} {quote(f'docker://{inputs.target}')} || fail",
        f"echo {quote(f'Pushed to {inputs.target}.')}",
    ]
    return "\n".join(lines) + "\n"


def _move_context() -> Iterator[str]:
    """Move uploaded files out of the working directory, once: a second attempt finds them already moved."""
    yield f"if [ ! -e {_CONTEXT}/whole ]; then"
    yield f"    mkdir -p {_CONTEXT}/files || exit 1"
    yield f"    find . -mindepth 1 -maxdepth 1 ! -name {_CONTEXT} -exec mv -t {_CONTEXT}/files -- {{}} + || exit 1"
    yield f"    : > {_CONTEXT}/whole"
    yield "fi"


def _by_podman(recipe: ImageRecipe, base: str) -> Iterator[str]:
    context = f"../{_CONTEXT}/files" if recipe.has_context else "context"
    build = ("build", "--isolation=chroot", "--pull=missing", "--format=oci", "--network=host", _SIGNATURES)
    name = f"--tag={recipe.name}"
    yield f"printf %s {quote(recipe.text)} > Containerfile"
    yield f"enter {quote(base)}"
    yield "take_layers"
    for image in recipe.bases:
        yield f"run_step fetch {quote(image)} || fail"
    yield f"run_step in_root {join([*build, name, '--file=Containerfile', context])} || fail"
    save = (
        "save",
        "--quiet",
        "--format=oci-archive",
        "--uncompressed",
        f"--output=env/{IMAGE_ARCHIVE_FILE}",
        recipe.name,
    )
    yield f"run_step in_root {join(save)} || fail"
    yield f"in_root image inspect --format '{{{{.Digest}}}}' {quote(recipe.name)} > lock"


def _by_apptainer(recipe: ImageRecipe) -> Iterator[str]:
    context = f"../{_CONTEXT}/files" if recipe.has_context else "context"
    yield f"printf %s {quote(recipe.text)} > image.def"
    yield "needs apptainer"
    yield 'room=$PWD; export APPTAINER_CACHEDIR="$room/cache" APPTAINER_TMPDIR="$room/tmp"; mkdir cache tmp'
    build = f'apptainer build --fakeroot "$room/env/{SIF_FILE}" "$room/image.def"'
    yield f"in_context() ( cd {context} && {build} )"
    yield "run_step in_context || fail"
    yield "rm -rf cache tmp"


def _open_login(folder: str) -> list[str]:
    """Open the login file and remove it before anything else runs."""
    file = quote(f"{folder}/login")
    missing = "echo 'The login for this push no longer exists: push again.' | tee ../why"
    return [
        f"[ -r {file} ] || {{ {missing}; exit 1; }}",
        f"exec {SEALED_DESCRIPTOR}<{file}",
        f"rm -f {file}",
    ]


@cache
def _functions() -> str:
    text = Path(__file__).with_name("image_build.sh").read_text(encoding="utf-8").rstrip()
    return text.replace("@FETCH@", quote(FETCH_IMAGE_SCRIPT)).replace(
        "@IGNORE_USER_CONFIG@\n", IGNORE_USER_CONFIG_LINES
    )
