"""Jupyter kernel specs for the environments of a session's user.

They are written into the session's own folder, never into the home. Names: the job's environment is `job`,
~/.conda/envs/vision is `conda-vision`, ~/venvs/nlp is `venv-nlp`, R is `ir`.
An environment without ipykernel uses that of JupyterLab, if both have the same Python version.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any

ENVIRONMENT_FOLDERS = (("conda", "~/.conda/envs"), ("venv", "~/venvs"), ("venv", "~/.virtualenvs"))
MAX_KERNELS = 50
PRINT_VERSION_CODE = "import sys; print('%d.%d' % sys.version_info[:2])"
BORROWED_IPYKERNEL_CODE = (
    "import sys; sys.path.append({!r}); from ipykernel.kernelapp import launch_new_instance as go; go()"
)


def write_kernel_specs(folder: str, jupyter: str) -> list[str]:
    """Write kernel specs into `folder`/kernels for the program `jupyter`. Returns their names."""
    lender = find_site_packages(os.path.dirname(os.path.dirname(os.path.realpath(jupyter))))
    specs: dict[str, dict[str, Any]] = {}
    for name, title, place in find_environments()[:MAX_KERNELS]:
        spec = make_python_kernel_spec(title, place, lender)
        if spec is None:
            print(f"{place} cannot be a kernel: run pip install ipykernel in it.", file=sys.stderr, flush=True)
        else:
            specs.setdefault(name, spec)
    if has_r_kernel():
        argv = ["R", "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}"]
        specs["ir"] = {"argv": argv, "display_name": "R", "language": "R"}
    for name, spec in specs.items():
        place = os.path.join(folder, "kernels", name)
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, "kernel.json"), "w") as file:
            json.dump(spec, file)
    return list(specs)


def find_environments() -> list[tuple[str, str, str]]:
    """Name, title and folder of each environment with Python; the job's own first."""
    found = []
    if os.environ.get("HELIOSTAT_ENVIRONMENT"):
        found.append(("job", "Python (environment of this job)", os.environ["VIRTUAL_ENV"]))
    for kind, place in ENVIRONMENT_FOLDERS:
        parent = os.path.expanduser(place)
        names = sorted(os.listdir(parent)) if os.path.isdir(parent) else []
        found += [
            (make_kernel_name(f"{kind}-{name}"), f"{name} ({kind})", os.path.join(parent, name)) for name in names
        ]
    return [item for item in found if os.access(os.path.join(item[2], "bin", "python"), os.X_OK)]


def make_kernel_name(text: str) -> str:
    """A valid Jupyter kernel name."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower())


def make_python_kernel_spec(title: str, place: str, lender: tuple[str, str] | None) -> dict[str, Any] | None:
    """None: no usable ipykernel."""
    python = os.path.join(place, "bin", "python")
    own = find_site_packages(place)
    if own is not None and has_ipykernel(own):
        start = ["-m", "ipykernel_launcher"]
    elif lender is not None and has_ipykernel(lender) and lender[0] == read_python_version(python):
        start = ["-c", BORROWED_IPYKERNEL_CODE.format(lender[1])]
    else:
        return None
    path = os.path.join(place, "bin") + os.pathsep + os.environ.get("PATH", "")
    kind = "CONDA_PREFIX" if os.path.isdir(os.path.join(place, "conda-meta")) else "VIRTUAL_ENV"
    return {
        "argv": [python, *start, "-f", "{connection_file}"],
        "display_name": title,
        "language": "python",
        "env": {"PATH": path, kind: place},
        "metadata": {"debugger": True},
    }


def has_ipykernel(lib: tuple[str, str]) -> bool:
    return os.path.isdir(os.path.join(lib[1], "ipykernel"))


def find_site_packages(place: str) -> tuple[str, str] | None:
    """The Python version of an environment (`3.11`) and its site-packages folder."""
    parent = os.path.join(place, "lib")
    names = os.listdir(parent) if os.path.isdir(parent) else []
    for match in filter(None, (re.fullmatch(r"python(3\.[0-9]+)", name) for name in sorted(names))):
        packages = os.path.join(parent, match[0], "site-packages")
        if os.path.isdir(packages):
            return match[1], packages
    return None


def read_python_version(python: str) -> str:
    """Empty: it cannot be run."""
    try:
        ran = subprocess.run(
            [python, "-I", "-S", "-c", PRINT_VERSION_CODE], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return ran.stdout.strip()


def has_r_kernel() -> bool:
    """Whether R and its package IRkernel are installed."""
    if shutil.which("R") is None or shutil.which("Rscript") is None:
        return False
    command = ["Rscript", "-e", "quit(status = !requireNamespace('IRkernel', quietly = TRUE))"]
    try:
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
