"""Batch notebook runner: executes a notebook with papermill inside a job, and reports why it failed.

Runs with the node's Python 3. It finds papermill, executes the notebook in papermill's own Python
(`notebook_cells`), checks that the result is complete, and renders it as HTML.
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
NO_PAPERMILL_MESSAGE = """papermill is not installed on the node of this job, and could not be built.
Put an environment with papermill, nbconvert and ipykernel on the PATH of the job;
or ask an admin to install uv (pip install 'heliostat[environments]'), or papermill next to jupyter_command."""


def main(_: list[str]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: None)  # papermill gets it too; wait for its results
    plan = json.loads(os.environ.pop(PLAN_VARIABLE))
    folder = tempfile.mkdtemp(prefix="notebook-")  # private to this user
    try:
        reason = run_notebook(plan, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if reason:
        print(f"The notebook failed: {reason}", file=sys.stderr, flush=True)
        write_reason(reason)
        sys.exit(1)


def run_notebook(plan: dict[str, Any], folder: str) -> str:
    """The reason of the failure; empty: success. Results are kept in both cases."""
    program = find_papermill()
    if not program:
        print(NO_PAPERMILL_MESSAGE, file=sys.stderr, flush=True)
        return "papermill is not installed on its node, and could not be built"
    try:
        output = prepare_files(plan, folder)
    except OSError as error:
        return f"cannot write to its results folder: {error.strerror}"
    write_kernel_specs(folder, program)
    python = os.path.join(os.path.dirname(program), "python")
    others = os.environ.get("JUPYTER_PATH")
    environment = dict(
        os.environ, JUPYTER_PATH=folder + (os.pathsep + others if others else ""), PYTHONUNBUFFERED="1"
    )
    run_cells = [python, os.path.abspath(sys.argv[0]), "notebook-cells"]
    notebook_folder = os.path.dirname(os.path.abspath(plan["notebook"]))
    plan_text = json.dumps(dict(plan, folder=folder, output=output, workdir=plan["workdir"] or notebook_folder))
    status = subprocess.run(
        [*run_cells, EXECUTE], input=plan_text.encode(), env=environment, check=False
    ).returncode
    outcome = (
        f"papermill ended with {describe_exit_status(status)}" if status else find_problem(output, plan["cells"])
    )
    reason = read_reason(folder) or outcome
    if os.path.isfile(output):
        page = os.path.splitext(output)[0] + ".html"
        if subprocess.run([*run_cells, RENDER, output, page], env=environment, check=False).returncode:
            print("The notebook could not be rendered as HTML.", file=sys.stderr, flush=True)
    return reason


def find_papermill() -> str:
    """A program next to the Python that has papermill: Heliostat's or one on the PATH. Empty: not found."""
    jupyter = os.environ.get("HELIOSTAT_JUPYTER", "")
    if jupyter and os.access(os.path.join(os.path.dirname(jupyter), "papermill"), os.X_OK):
        return jupyter
    return shutil.which("papermill") or ""


def prepare_files(plan: dict[str, Any], folder: str) -> str:
    """Copy the notebook to a name that papermill does not expand; return the result path. Raises OSError."""
    shutil.copyfile(plan["notebook"], os.path.join(folder, INPUT_FILE))
    os.makedirs(RESULTS_FOLDER, exist_ok=True)
    output = os.path.abspath(os.path.join(RESULTS_FOLDER, os.path.basename(plan["notebook"])))
    for name in (output, os.path.splitext(output)[0] + ".html"):  # results of an earlier attempt
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
    """What is wrong with the executed notebook; empty: it is complete."""
    try:
        with open(output, encoding="utf-8") as file:
            notebook = json.load(file)
    except FileNotFoundError:
        return "the executed notebook is missing"
    except (OSError, ValueError, RecursionError) as error:
        return f"the executed notebook is not readable: {error}"
    cells_done = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells_done, list) or len(cells_done) < cells:
        return f"the executed notebook is not complete: it has {len(cells_done or ())} of {cells} cells"
    papermill_metadata = notebook.get("metadata", {}).get("papermill", {})
    return (
        ""
        if papermill_metadata.get("end_time")
        else "the executed notebook is not complete: the run did not finish"
    )


def write_reason(reason: str) -> None:
    """Write the reason of the failure into the job's folder, for the server."""
    path = os.path.join(os.environ["HELIOSTAT_CHECKPOINT_DIR"], ".notebook-" + os.environ["HELIOSTAT_ATTEMPT"])
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(reason[:MAX_REASON_LENGTH])
    except OSError as error:
        print(f"The reason could not be saved: {error}", file=sys.stderr, flush=True)
