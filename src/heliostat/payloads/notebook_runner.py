"""Runs inside the job of a batch notebook, as its user, by whatever Python 3 the node has.

It finds papermill, has the notebook run by it (`notebook_cells`, in papermill's own Python), proves that what was
kept is whole, makes a page of it, and says in words why it failed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any

from heliostat.payloads.kernel_specs import write_kernel_specs
from heliostat.payloads.notebook_cells import EXECUTE, INPUT_FILE, REASON_FILE, RENDER

PLAN_VARIABLE = "HELIOSTAT_NOTEBOOK"
RESULTS_FOLDER = "results"
MAX_REASON_LENGTH = 1000
NO_PAPERMILL_MESSAGE = """papermill is not installed where this job runs, and could not be built for it.
Put an environment on its PATH in which pip install papermill nbconvert ipykernel was run;
or ask an admin to install uv (pip install 'heliostat[environments]'), or papermill beside jupyter_command."""


def main(_: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)  # papermill gets it as well, and we keep what it leaves
    plan = json.loads(os.environ.pop(PLAN_VARIABLE))
    folder = tempfile.mkdtemp(prefix="notebook-")  # nobody else may enter it
    try:
        reason = run_notebook(plan, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if reason:
        print(f"The notebook failed: {reason}", file=sys.stderr, flush=True)
        write_reason(reason)
        sys.exit(1)


def run_notebook(plan: dict[str, Any], folder: str) -> str:
    """What went wrong, in words; empty: nothing. Whatever there is of the results is kept either way."""
    program = find_papermill()
    if not program:
        print(NO_PAPERMILL_MESSAGE, file=sys.stderr, flush=True)
        return "papermill is not installed where it ran, and could not be built for it"
    try:
        output = prepare_files(plan, folder)
    except OSError as error:
        return f"its folder for results cannot be used: {error.strerror}"
    write_kernel_specs(folder, program)
    python = os.path.join(os.path.dirname(program), "python")
    others = os.environ.get("JUPYTER_PATH")
    around = dict(os.environ, JUPYTER_PATH=folder + (os.pathsep + others if others else ""), PYTHONUNBUFFERED="1")
    in_its_python = [python, os.path.abspath(sys.argv[0]), "notebook-cells"]
    beside = os.path.dirname(os.path.abspath(plan["notebook"]))
    told = json.dumps(dict(plan, folder=folder, output=output, workdir=plan["workdir"] or beside))
    status = subprocess.run([*in_its_python, EXECUTE], input=told.encode(), env=around, check=False).returncode
    ending = (
        f"papermill ended with {describe_exit_status(status)}" if status else find_problem(output, plan["cells"])
    )
    reason = read_reason(folder) or ending
    if os.path.isfile(output):
        page = os.path.splitext(output)[0] + ".html"
        if subprocess.run([*in_its_python, RENDER, output, page], env=around, check=False).returncode:
            print("No page could be made of the notebook.", file=sys.stderr, flush=True)
    return reason


def find_papermill() -> str:
    """A program beside the Python that has it: the one we brought, or one on the PATH; empty: there is none."""
    brought = os.environ.get("HELIOSTAT_JUPYTER", "")
    if brought and os.access(os.path.join(os.path.dirname(brought), "papermill"), os.X_OK):
        return brought
    return shutil.which("papermill") or ""


def prepare_files(plan: dict[str, Any], folder: str) -> str:
    """The notebook under a name that papermill takes as it is, and where its results go. Raises OSError."""
    shutil.copyfile(plan["notebook"], os.path.join(folder, INPUT_FILE))
    os.makedirs(RESULTS_FOLDER, exist_ok=True)
    output = os.path.abspath(os.path.join(RESULTS_FOLDER, os.path.basename(plan["notebook"])))
    for name in (output, os.path.splitext(output)[0] + ".html"):  # of an attempt before
        if os.path.lexists(name):
            os.unlink(name)
    return output


def read_reason(folder: str) -> str:
    try:
        with open(os.path.join(folder, REASON_FILE), encoding="utf-8") as file:
            return file.read(MAX_REASON_LENGTH)
    except OSError:
        return ""


def describe_exit_status(status: int) -> str:
    return f"exit code {status}" if status > 0 else f"signal {-status}"


def find_problem(output: str, cells: int) -> str:
    """What is wrong with a notebook that was executed, in words; empty: it is whole."""
    try:
        with open(output, encoding="utf-8") as file:
            notebook = json.load(file)
    except FileNotFoundError:
        return "the executed notebook is missing"
    except (OSError, ValueError, RecursionError) as error:
        return f"the executed notebook is not whole: {error}"
    kept = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(kept, list) or len(kept) < cells:
        return f"the executed notebook is not whole: it has {len(kept or ())} of {cells} cells"
    about = notebook.get("metadata", {}).get("papermill", {})
    return "" if about.get("end_time") else "the executed notebook is not whole: it was not finished"


def write_reason(reason: str) -> None:
    """In a file of the job's own: the reason of its end, in its owner's words."""
    path = os.path.join(os.environ["HELIOSTAT_CHECKPOINT_DIR"], ".notebook-" + os.environ["HELIOSTAT_ATTEMPT"])
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(reason[:MAX_REASON_LENGTH])
    except OSError as error:
        print(f"The reason could not be noted: {error}", file=sys.stderr, flush=True)
