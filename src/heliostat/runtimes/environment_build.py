"""Environment builds: the shell script that builds an environment with uv or micromamba. Pure text.

Environments that all users share are built by a dedicated Unix user. Code of packages (source builds, scripts of
conda packages, code that runs when Python starts) runs only in a sandbox, with read access to the node's software
and write access to the folder `room`. The shared cache is not visible in the sandbox: only uv itself writes it,
and uv runs no code of packages when it installs wheels.

The script runs in the working directory of its job and leaves `room/env` and `room/lock` (conda: `lock`), or in
`why` the last output of the failed step.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from shlex import join, quote

from heliostat.models import Mount
from heliostat.models.environments import EnvironmentSpec
from heliostat.runtimes.bubblewrap import filesystem_options
from heliostat.runtimes.contract import TOOL_PATH

_KEPT_OUTPUT_BYTES = 4000


@dataclass(frozen=True, slots=True)
class EnvironmentRecipe:
    """Inputs of an environment build."""

    spec: EnvironmentSpec
    tool_path: str  # of uv or micromamba
    python_path: str  # of the Python that the environment is for
    install_folder: str  # where the environment will be installed
    variables: Mapping[str, str]  # for the tool; not secret
    shared_cache: str | None = None  # of all builds; None: the environment and its cache belong to one user

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
        "rm -rf room why output code && mkdir room && cd room || exit 1",
        _sandbox(recipe),
        *(f"printf %s {quote(text)} > {quote(name)}" for name, text in recipe.spec.files),
        *steps,
        "rm -rf cache",
        "echo 'The environment is ready.'",
    ]
    return "\n".join(lines) + "\n"


# `run_step` prints and saves the output of a step and returns its exit code, which a plain pipe would hide. The
# files are outside the sandbox: inside, package code could replace them by links.
_FUNCTIONS = (
    "set -u",
    'run_step() { { "$@"; echo $? > ../code; } 2>&1 | tee ../output; return "$(cat ../code)"; }',
    f"fail() {{ tail -c {_KEPT_OUTPUT_BYTES} ../output > ../why; rm -rf env cache; exit 1; }}",
)


def _variables(recipe: EnvironmentRecipe) -> dict[str, str]:
    """No user's configuration affects shared environments. uv uses the node's certificates, since many institutes
    have a TLS proxy with a certificate of their own (UV_NATIVE_TLS: uv before 0.10)."""
    settings = {"UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
    settings |= {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
    shared = {"HOME": "/nowhere", "UV_CACHE_DIR": recipe.shared_cache} if recipe.shared_cache else {}
    return {**settings, **recipe.variables, **shared}


def _sandbox(recipe: EnvironmentRecipe) -> str:
    """The shell function `inside`, which runs a command in the sandbox. A user's own build needs no sandbox."""
    if not recipe.is_shared and recipe.spec.kind != "conda":
        return 'inside() { "$@"; }'
    hidden = {"HOME", "UV_CACHE_DIR"}
    exported = {name: value for name, value in _variables(recipe).items() if name not in hidden}
    sandbox_argv = (
        *("bwrap", "--unshare-all", "--share-net", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
        "--clearenv",
        *filesystem_options([Mount(recipe.tool_path, recipe.tool_path, read_only=True)]),
        *(word for path in exported.values() if path.startswith("/") for word in ("--ro-bind-try", path, path)),
        *("--setenv", "PATH", TOOL_PATH),
        *(word for name, value in exported.items() for word in ("--setenv", name, value)),
    )
    here = '--bind "$PWD" "$PWD" --chdir "$PWD" --setenv HOME "$PWD" --setenv UV_CACHE_DIR "$PWD/cache"'
    final_mount = f' --bind "$PWD/env" {quote(recipe.install_folder)}' if recipe.spec.kind == "conda" else ""
    return f'inside() {{ {join(sandbox_argv)} {here}{final_mount} --remount-ro / -- "$@"; }}'


def _python(recipe: EnvironmentRecipe) -> Iterator[str]:
    """Install wheels, with the shared cache, if all packages have wheels; otherwise build in the sandbox.

    In the cache, the index of a wheel is not verified. So the cache is used only if all packages are pinned by
    hashes: a package that another build put there under a wrong name is then rejected. Packages from git are never
    wheels, and git itself parses untrusted input.
    """
    uv, kind = quote(recipe.tool_path), recipe.spec.kind
    venv = f"{uv} venv --quiet --relocatable --python {quote(recipe.python_path)} env"
    if recipe.is_shared and not _is_pinned_by_hashes(recipe.spec):
        yield from _build_in_sandbox(kind, uv, venv)
    else:
        yield f"run_step {venv} || fail"
        yield f"if {_lock(kind, uv, by_wheels=True)} > ../output 2>&1 &&"
        yield f"    run_step {_install(kind, uv, by_wheels=True)}; then :; else"
        yield "    echo 'Some packages are not available as wheels. Building them from source …'"
        yield "    rm -rf env lock"
        yield from (f"    {line}" for line in _build_in_sandbox(kind, uv, venv))
        yield "fi"
    yield "echo 'Compiling …'"
    # Not with the environment's own Python, which runs start-up code of packages: some files here are hard links
    # to the cache.
    yield f"inside {quote(recipe.python_path)} -I -S -m compileall -q -j 0 env/lib > /dev/null 2>&1 || true"


def _build_in_sandbox(kind: str, uv: str, venv: str) -> Iterator[str]:
    yield f"run_step inside {venv} || fail"
    yield f"run_step inside {_lock(kind, uv)} || fail"
    yield f"run_step inside {_install(kind, uv)} || fail"


def _is_pinned_by_hashes(spec: EnvironmentSpec) -> bool:
    """Whether all packages may be wheels with known hashes. For requirements, uv adds the hashes."""
    if spec.kind != "uv":
        return not any("git+" in text for _, text in spec.files)
    packages = tomllib.loads(dict(spec.files)["uv.lock"]).get("package", [])
    files = [file for item in packages for file in (item.get("sdist"), *(item.get("wheels") or ())) if file]
    if any("git" in package.get("source", {}) for package in packages):
        return False
    return all(isinstance(file, dict) and str(file.get("hash")).startswith("sha256:") for file in files)


def _lock(kind: str, uv: str, by_wheels: bool = False) -> str:
    """Write the exact versions into `lock`."""
    if kind == "uv":
        return f"{uv} export --quiet --frozen --no-emit-project --no-dev --no-header --output-file lock"
    only = " --only-binary :all:" if by_wheels else ""
    options = "--quiet --generate-hashes --emit-index-url --no-header --python env/bin/python --output-file lock"
    return f"{uv} pip compile {options}{only} requirements.txt"


def _install(kind: str, uv: str, by_wheels: bool = False) -> str:
    if kind == "uv":
        only = " --no-build" if by_wheels else ""
        return f"env UV_PROJECT_ENVIRONMENT=env {uv} sync --frozen --no-install-project --no-dev{only}"
    only = " --only-binary :all: --require-hashes" if by_wheels else ""
    return f"{uv} pip sync --python env/bin/python{only} lock"


def _conda(recipe: EnvironmentRecipe) -> Iterator[str]:
    """Files of a conda environment contain its path, so `env` is mounted at the final path during the build."""
    tool, final = quote(recipe.tool_path), quote(recipe.install_folder)
    options = "--yes --no-rc --no-env --root-prefix cache/conda"
    yield "mkdir env"
    yield f"run_step inside {tool} create {options} --prefix {final} --file environment.yml || fail"
    yield f"inside {tool} list --no-rc --prefix {final} --json > ../lock 2> ../output || fail"
