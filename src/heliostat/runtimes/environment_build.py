"""The script that builds an environment, in the working directory of its job. Pure text.

Where everybody shares the result, it is built by a Unix user of its own, who is nobody else. Code of strangers (to
build a source distribution, a conda package's own scripts, what a package runs when Python starts) runs only in a
room: it sees the node's software and this one folder. The cache all builds share is never in that room: only uv
itself writes it, and uv runs no code of packages as long as it takes wheels.

It leaves `room/env` and `room/lock` (of conda: `lock`), or in `why` the last words of what went wrong.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from shlex import join, quote

from heliostat.models import Mount
from heliostat.models.environments import EnvironmentSpec
from heliostat.runtimes.bubblewrap import filesystem_options
from heliostat.runtimes.contract import TOOL_PATH

_WORDS_KEPT_BYTES = 4000


@dataclass(frozen=True, slots=True)
class EnvironmentRecipe:
    """What is to be built, and with what."""

    spec: EnvironmentSpec
    tool_path: str  # the path of uv, or of micromamba
    python_path: str  # the path of the one it is for
    install_folder: str  # the folder it will be found in
    variables: Mapping[str, str]  # for the tool; everybody can read them
    shared_cache: str | None = None  # of all builds; None: that of the user who builds, who shares with nobody

    @property
    def is_shared(self) -> bool:
        return self.shared_cache is not None


def render_environment_build(recipe: EnvironmentRecipe) -> str:
    steps = _conda(recipe) if recipe.spec.kind == "conda" else _python(recipe)
    lines = [
        "#!/bin/sh",
        *_FUNCTIONS,
        f"export PATH={quote(TOOL_PATH)}",
        *(f"export {name}={quote(value)}" for name, value in _variables(recipe).items()),
        "rm -rf room why said code && mkdir room && cd room || exit 1",
        _room(recipe),
        *(f"printf %s {quote(text)} > {quote(name)}" for name, text in recipe.spec.files),
        *steps,
        "rm -rf cache",
        "echo 'The environment is ready.'",
    ]
    return "\n".join(lines) + "\n"


# `tell` shows what a step says and keeps its last words; a pipe would hide whether it succeeded. What is written
# here lies beside the room: a link that strangers laid there would lead us anywhere.
_FUNCTIONS = (
    "set -u",
    'tell() { { "$@"; echo $? > ../code; } 2>&1 | tee ../said; return "$(cat ../code)"; }',
    f"fail() {{ tail -c {_WORDS_KEPT_BYTES} ../said > ../why; rm -rf env cache; exit 1; }}",
)


def _variables(recipe: EnvironmentRecipe) -> dict[str, str]:
    """Nothing of anybody's own configuration decides what everybody gets. Whom the node trusts, uv does too: many
    institutes sign for what comes from outside. (Before 0.10 the word for that was another.)"""
    ours = {"UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
    ours |= {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
    shared = {"HOME": "/nowhere", "UV_CACHE_DIR": recipe.shared_cache} if recipe.shared_cache else {}
    return {**ours, **recipe.variables, **shared}


def _room(recipe: EnvironmentRecipe) -> str:
    """`inside` runs a command where it can harm nothing but this build; alone with oneself there is no need to."""
    if not recipe.is_shared and recipe.spec.kind != "conda":
        return 'inside() { "$@"; }'
    theirs = {"HOME", "UV_CACHE_DIR"}
    own = {name: value for name, value in _variables(recipe).items() if name not in theirs}
    words = (
        *("bwrap", "--unshare-all", "--share-net", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        "--clearenv",
        *filesystem_options([Mount(recipe.tool_path, recipe.tool_path, read_only=True)]),
        *(word for path in own.values() if path.startswith("/") for word in ("--ro-bind-try", path, path)),
        *("--setenv", "PATH", TOOL_PATH),
        *(word for name, value in own.items() for word in ("--setenv", name, value)),
    )
    here = '--bind "$PWD" "$PWD" --chdir "$PWD" --setenv HOME "$PWD" --setenv UV_CACHE_DIR "$PWD/cache"'
    over = f' --bind "$PWD/env" {quote(recipe.install_folder)}' if recipe.spec.kind == "conda" else ""
    return f'inside() {{ {join(words)} {here}{over} --remount-ro / -- "$@"; }}'


def _python(recipe: EnvironmentRecipe) -> Iterator[str]:
    """By wheels if all is there as wheels, with the shared cache; otherwise from the start, in the room.

    The cache takes a lock's word for what index a wheel comes from. So only who proves all of it by hashes may use
    the cache: what others have put there under a wrong name is then not taken. What git has is never a wheel, and
    git reads what strangers have written.
    """
    uv, kind = quote(recipe.tool_path), recipe.spec.kind
    venv = f"{uv} venv --quiet --relocatable --python {quote(recipe.python_path)} env"
    if recipe.is_shared and not _is_proven(recipe.spec):
        yield from _in_the_room(kind, uv, venv)
    else:
        yield f"tell {venv} || fail"
        yield f"if {_pick(kind, uv, by_wheels=True)} > ../said 2>&1 &&"
        yield f"    tell {_install(kind, uv, by_wheels=True)}; then :; else"
        yield "    echo 'Not all of it is there as wheels. Building from source where it must be …'"
        yield "    rm -rf env lock"
        yield from (f"    {line}" for line in _in_the_room(kind, uv, venv))
        yield "fi"
    yield "echo 'Compiling …'"
    # Not the environment's own Python, which runs what packages leave for its start: some files here are still
    # those of the cache.
    yield f"inside {quote(recipe.python_path)} -I -S -m compileall -q -j 0 env/lib > /dev/null 2>&1 || true"


def _in_the_room(kind: str, uv: str, venv: str) -> Iterator[str]:
    yield f"tell inside {venv} || fail"
    yield f"tell inside {_pick(kind, uv)} || fail"
    yield f"tell inside {_install(kind, uv)} || fail"


def _is_proven(software: EnvironmentSpec) -> bool:
    """Whether all that is installed may be there as wheels, each known by its hash. Those of names and versions uv
    finds itself."""
    if software.kind != "uv":
        return not any("git+" in text for _, text in software.files)
    packages = tomllib.loads(dict(software.files)["uv.lock"]).get("package", [])
    files = [file for one in packages for file in (one.get("sdist"), *(one.get("wheels") or ())) if file]
    if any("git" in one.get("source", {}) for one in packages):
        return False
    return all(isinstance(file, dict) and str(file.get("hash")).startswith("sha256:") for file in files)


def _pick(kind: str, uv: str, by_wheels: bool = False) -> str:
    """Which versions exactly: written to `lock`."""
    if kind == "uv":
        return f"{uv} export --quiet --frozen --no-emit-project --no-dev --no-header --output-file lock"
    only = " --only-binary :all:" if by_wheels else ""
    words = "--quiet --generate-hashes --emit-index-url --no-header --python env/bin/python --output-file lock"
    return f"{uv} pip compile {words}{only} requirements.txt"


def _install(kind: str, uv: str, by_wheels: bool = False) -> str:
    if kind == "uv":
        only = " --no-build" if by_wheels else ""
        return f"env UV_PROJECT_ENVIRONMENT=env {uv} sync --frozen --no-install-project --no-dev{only}"
    only = " --only-binary :all: --require-hashes" if by_wheels else ""
    return f"{uv} pip sync --python env/bin/python{only} lock"


def _conda(recipe: EnvironmentRecipe) -> Iterator[str]:
    """Its files hold the path they are installed at, so it is built there: that place is laid over `env`."""
    tool, final = quote(recipe.tool_path), quote(recipe.install_folder)
    alone = "--yes --no-rc --no-env --root-prefix cache/conda"
    yield "mkdir env"
    yield f"tell inside {tool} create {alone} --prefix {final} --file environment.yml || fail"
    yield f"inside {tool} list --no-rc --prefix {final} --json > ../lock 2> ../said || fail"
