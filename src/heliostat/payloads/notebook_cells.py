"""Runs inside the job of a batch notebook, in the Python that has papermill: cell by cell, each with a log line.

usage: notebook-cells execute <PLAN | render NOTEBOOK PAGE
The notebook is saved whole or not at all: whoever dies in between leaves the cells that were done.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

EXECUTE, RENDER = "execute", "render"
INPUT_FILE, REASON_FILE = "notebook.ipynb", "reason"
START_SECONDS = 600  # a busy machine and a cold disk are no reason to fail
SAVE_SECONDS = 30
MAX_LINE_LENGTH = 80
MAX_ERROR_LENGTH = 500
MAX_SOCKET_PATH_LENGTH = 100  # Linux takes 107 bytes


class KernelMissing(Exception):
    """Says which kernel is missing."""


class KernelDied(Exception):
    """In the cell of that number."""


def main(arguments: list[str]) -> None:
    if arguments[0] == EXECUTE:
        sys.exit(execute(json.loads(sys.stdin.read())))
    sys.exit(render_html(*arguments[1:3]))


def execute(plan: dict[str, Any]) -> int:
    """An exit code; what went wrong is in the file `REASON` too."""
    try:
        reason = run_cells(plan)
    except KernelMissing as error:
        reason = str(error)
    except KernelDied as error:
        reason = f"the kernel died in cell {error}: it was killed, ran out of memory, or ended its own process"
    except OSError as error:
        reason = f"it could not go on: {error}"
    if reason:
        with open(os.path.join(plan["folder"], REASON_FILE), "w", encoding="utf-8") as file:
            file.write(reason)
    return 1 if reason else 0


def run_cells(plan: dict[str, Any]) -> str:
    """Why it failed; empty: it did not. Raises KernelDied, NoKernel or OSError."""
    papermill = importlib.import_module("papermill")
    source = os.path.join(plan["folder"], INPUT_FILE)
    about = importlib.import_module("nbformat").read(source, as_version=4).metadata
    language = notebook_language(about)
    kernel = choose_kernel(plan["kernel"], about, language, list_installed_kernels())
    engines = importlib.import_module("papermill.engines").papermill_engines
    engines.register("logging", make_logging_engine(dict(plan, language=language)))
    print(f"Kernel {kernel}, in {plan['workdir']}", file=sys.stderr, flush=True)
    options = {"engine_name": "logging", "kernel_name": kernel, "language": language, "cwd": plan["workdir"]}
    options.update(progress_bar=False, stdout_file=sys.stdout, autosave_cell_every=SAVE_SECONDS)
    try:
        papermill.execute_notebook(source, None, plan["parameters"], start_timeout=START_SECONDS, **options)
    except papermill.PapermillExecutionError as error:
        return f"cell {error.cell_index + 1} failed: {error.ename}: {one_line(error.evalue, MAX_ERROR_LENGTH)}"
    except (papermill.exceptions.PapermillException, RuntimeError, ValueError) as error:
        return f"papermill: {one_line(str(error), MAX_ERROR_LENGTH)}"
    return ""


class LoggingClient:
    """What is ours of the client of papermill that runs the cells: it logs what they do."""

    nb: Any
    nb_man: Any
    execute_cell: Any

    def papermill_execute_cells(self) -> None:
        errors = importlib.import_module("nbclient.exceptions")
        for index, cell in enumerate(self.nb.cells):
            log_cell(cell, index + 1, len(self.nb.cells))
            try:
                self.nb_man.cell_start(cell, index)
                self.execute_cell(cell, index)
            except (errors.CellExecutionError, errors.DeadKernelError) as error:
                self.nb_man.cell_exception(cell, cell_index=index, exception=error)
                if isinstance(error, errors.DeadKernelError):
                    raise KernelDied(index + 1) from error
                break
            finally:
                self.nb_man.cell_complete(cell, cell_index=index)

    def log_output_message(self, output: Any) -> None:
        stream = sys.stderr if output.get("name") == "stderr" or output.output_type == "error" else sys.stdout
        stream.write(log_text(output))
        stream.flush()


def make_logging_engine(plan: dict[str, Any]) -> Any:
    """As papermill's own, but it logs what it does, and saves in one piece."""
    theirs = importlib.import_module("papermill.clientwrap").PapermillNotebookClient
    client = type("Client", (LoggingClient, theirs), {})

    def managed(nb_man: Any, kernel_name: str, **given: Any) -> Any:
        nb_man.save = lambda **_: save_notebook(nb_man, plan["output"])
        options = {"stdout_file": given["stdout_file"], "startup_timeout": given["start_timeout"]}
        return client(nb_man, kernel_name=kernel_name, config=kernel_connection_config(plan), **options).execute()

    engine = importlib.import_module("papermill.engines").NBClientEngine
    return type("Engine", (engine,), {"execute_managed_notebook": staticmethod(managed)})


def kernel_connection_config(plan: dict[str, Any]) -> Any:
    """Settings of the kernel's sockets. At a port of the machine everybody there could read what it prints;
    kernels of Python and R can have sockets in a folder that only their user may enter."""
    config = importlib.import_module("traitlets.config").Config()
    place = os.path.join(plan["folder"], "kernel")
    if plan["language"] in ("python", "r") and len(place) <= MAX_SOCKET_PATH_LENGTH:
        config.KernelManager.update(transport="ipc", ip=place)
    return config


def save_notebook(nb_man: Any, output: str) -> None:
    """Whole, or not at all. Raises OSError."""
    text = importlib.import_module("nbformat").writes(nb_man.nb)
    write_atomically(output, text)
    nb_man.last_save_time = nb_man.now()


def write_atomically(path: str, text: str) -> None:
    with open(path + ".part", "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)


def log_cell(cell: Any, number: int, total: int) -> None:
    if cell.cell_type != "code":
        return
    lines = [line.strip() for line in cell.source.splitlines() if line.strip()]
    print(
        f"[cell {number} of {total}] {one_line(lines[0], MAX_LINE_LENGTH) if lines else ''}",
        file=sys.stderr,
        flush=True,
    )


def log_text(output: Any) -> str:
    """What a log can show of it."""
    if output.output_type == "stream":
        return "".join(output.text)
    if output.output_type == "error":
        return "\n".join(output.traceback) + "\n"
    plain = output.get("data", {}).get("text/plain")
    return "".join(plain) + "\n" if plain else ""


def one_line(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[:most] + "…"


def notebook_language(about: Any) -> str:
    """That of a notebook, from its metadata, in small letters."""
    said = about.get("kernelspec", {}).get("language") or about.get("language_info", {}).get("name")
    return str(said or "python").lower()


def list_installed_kernels() -> list[str]:
    manager = importlib.import_module("jupyter_client.kernelspec").KernelSpecManager()
    return sorted(manager.find_kernel_specs())


def choose_kernel(asked: str | None, about: Any, language: str, names: list[str]) -> str:
    """The one that is asked for; else the job's environment, for Python; else the notebook's own, or the usual one
    of its language. Raises NoKernel."""
    if asked:
        return require_kernel(asked, names)
    if language == "python" and os.environ.get("HELIOSTAT_ENVIRONMENT"):
        if "job" in names:
            return "job"
        raise KernelMissing("its environment cannot be a kernel: add ipykernel to its requirements")
    own = about.get("kernelspec", {}).get("name")
    if own in names:
        return str(own)
    return require_kernel({"python": "python3", "r": "ir"}.get(language, own or language), names)


def require_kernel(name: str, names: list[str]) -> str:
    if name in names:
        return name
    raise KernelMissing(f"there is no kernel {name} where it ran; there are: {', '.join(names) or 'none'}")


def render_html(notebook: str, page: str) -> int:
    """A page of its own for a browser."""
    exporter = importlib.import_module("nbconvert").HTMLExporter()
    text, _ = exporter.from_filename(notebook)
    write_atomically(page, text)
    return 0
