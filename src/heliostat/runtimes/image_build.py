"""The scripts that build an image and push it to a registry, in the working directory of their job. Pure text.

Both run as the person, on a store of podman that lives as long as the attempt: whatever is killed at any moment
leaves nothing that anybody could take for an image. A build finds the layers of that person's builds before, in a
store that jobs never look into. It leaves `room/env/image.tar` (of apptainer:
`image.sif`), a push `digest`; or in `why` the last words of what went wrong.
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
_SIGNATURES = "--signature-policy=/etc/containers/policy.json"  # the node's: not that of the person


@dataclass(frozen=True, slots=True)
class ImageRecipe:
    """What is to be built."""

    kind: str  # image, definition
    name: str  # in full, as containers will know it
    text: str  # of the Containerfile, or of the definition file
    files: tuple[tuple[str, str], ...] = ()  # name and text, of what it copies
    has_context: bool = False  # what it copies lies in the working directory
    bases: tuple[str, ...] = ()  # images it begins with, as far as it names them


@dataclass(frozen=True, slots=True)
class ImagePushInputs:
    """What is to be pushed where."""

    name: str
    archive: str
    target: str  # in full
    login_folder: (
        str | None
    )  # the folder with the file `login`, which goes once it is read; None: as the person is


def render_image_build(recipe: ImageRecipe, base: str) -> str:
    """`base`: how the folder of each person begins, on nodes of an engine that does not lay one out."""
    steps = _by_podman(recipe, base) if recipe.kind == "image" else _by_apptainer(recipe)
    lines = [
        "#!/bin/sh",
        _functions(),
        f"export PATH={quote(TOOL_PATH)}",
        *(_set_aside() if recipe.has_context else ()),
        "rm -rf room why said code && mkdir -p room/env room/context && cd room || exit 1",
        *(f"printf %s {quote(text)} > context/{quote(name)}" for name, text in recipe.files),
        *steps,
        f"rm -rf ../{_CONTEXT}",
        "echo 'The image is ready.'",
    ]
    return "\n".join(lines) + "\n"


def render_image_push(shipment: ImagePushInputs, base: str) -> str:
    login = () if shipment.login_folder is None else _opened(shipment.login_folder)
    by = () if shipment.login_folder is None else (f"--authfile={SEALED_PATH}",)
    lines = [
        "#!/bin/sh",
        _functions(),
        f"export PATH={quote(TOOL_PATH)}",
        "rm -rf room why said code digest && mkdir room && cd room || exit 1",
        *login,
        f"enter {quote(base)}",
        f"tell in_root load --quiet --input {quote(shipment.archive)} || fail",
        f"tell in_root push {join(['--digestfile=../digest', *by])} "
        f"{quote(shipment.name)} {quote(f'docker://{shipment.target}')} || fail",
        f"echo {quote(f'It is there: {shipment.target}')}",
    ]
    return "\n".join(lines) + "\n"


def _set_aside() -> Iterator[str]:
    """What was uploaded lies where we work. A second attempt finds it where the first has put it."""
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
        yield f"tell fetch {quote(image)} || fail"
    yield f"tell in_root {join([*build, name, '--file=Containerfile', context])} || fail"
    save = (
        "save",
        "--quiet",
        "--format=oci-archive",
        "--uncompressed",
        f"--output=env/{IMAGE_ARCHIVE_FILE}",
        recipe.name,
    )
    yield f"tell in_root {join(save)} || fail"
    yield f"in_root image inspect --format '{{{{.Digest}}}}' {quote(recipe.name)} > lock"


def _by_apptainer(recipe: ImageRecipe) -> Iterator[str]:
    context = f"../{_CONTEXT}/files" if recipe.has_context else "context"
    yield f"printf %s {quote(recipe.text)} > image.def"
    yield "needs apptainer"
    yield 'room=$PWD; export APPTAINER_CACHEDIR="$room/cache" APPTAINER_TMPDIR="$room/tmp"; mkdir cache tmp'
    build = f'apptainer build --fakeroot "$room/env/{SIF_FILE}" "$room/image.def"'
    yield f"in_context() ( cd {context} && {build} )"
    yield "tell in_context || fail"
    yield "rm -rf cache tmp"


def _opened(folder: str) -> list[str]:
    """The login is on a descriptor before anything else happens, and its file is gone."""
    opened = f"exec {SEALED_DESCRIPTOR}<{quote(f'{folder}/login')}"
    told = "echo 'The login for this push is gone: push again.' | tee ../why"
    return [
        f"[ -r {quote(f'{folder}/login')} ] || {{ {told}; exit 1; }}",
        opened,
        f"rm -f {quote(f'{folder}/login')}",
    ]


@cache
def _functions() -> str:
    text = Path(__file__).with_name("image_build.sh").read_text(encoding="utf-8").rstrip()
    return text.replace("@FETCH@", quote(FETCH_IMAGE_SCRIPT)).replace(
        "@WITHOUT_OWN_SETTINGS@\n", IGNORE_USER_CONFIG_LINES
    )
