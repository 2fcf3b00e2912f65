"""Batch notebook execution: runs the cells with papermill, in papermill's Python, with one log line per cell.

usage: notebook-cells execute <PLAN | render NOTEBOOK PAGE
The notebook is saved atomically: after a crash, it holds the cells that were finished.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

EXECUTE, RENDER = "execute", "render"
INPUT_FILE, REASON_FILE = "notebook.ipynb", "reason"
START_SECONDS = 600  # a kernel starts slowly on a busy node or a cold disk
SAVE_SECONDS = 30
MAX_LINE_LENGTH = 80
MAX_ERROR_LENGTH = 500
MAX_SOCKET_PATH_LENGTH = 100  # the limit of Linux is 107 bytes


class KernelMissing(Exception):
    """The message is the reason."""


class KernelDied(Exception):
    """The argument is the number of the cell."""


def main(arguments: list[str]) -> None:
    if arguments[0] == EXECUTE:
        sys.exit(execute(json.loads(sys.stdin.read())))
    sys.exit(render_html(*arguments[1:3]))


def execute(plan: dict[str, Any]) -> int:
    """Returns an exit code; writes the reason of a failure into REASON_FILE."""
    try:
        reason = run_cells(plan)
    except KernelMissing as error:
        reason = str(error)
    except KernelDied as error:
        reason = f"the kernel died in cell {error}: it was killed, ran out of memory, or exited"
    except OSError as error:
        reason = f"the run was aborted: {error}"
    if reason:
        with open(os.path.join(plan["folder"], REASON_FILE), "w", encoding="utf-8") as file:
            file.write(reason)
    return 1 if reason else 0


def run_cells(plan: dict[str, Any]) -> str:
    """The reason of the failure; empty: success. Raises KernelDied, KernelMissing or OSError."""
    papermill = importlib.import_module("papermill")
    source = os.path.join(plan["folder"], INPUT_FILE)
    metadata = importlib.import_module("nbformat").read(source, as_version=4).metadata
    language = notebook_language(metadata)
    kernel = choose_kernel(plan["kernel"], metadata, language, list_installed_kernels())
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
    """Mixin for papermill's notebook client: logs each cell and its output."""

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
    """papermill's engine with logging and atomic saving."""
    client_class = importlib.import_module("papermill.clientwrap").PapermillNotebookClient
    client = type("Client", (LoggingClient, client_class), {})

    def managed(nb_man: Any, kernel_name: str, **options_given: Any) -> Any:
        nb_man.save = lambda **_: save_notebook(nb_man, plan["output"])
        options = {"stdout_file": options_given["stdout_file"], "startup_timeout": options_given["start_timeout"]}
        return client(nb_man, kernel_name=kernel_name, config=kernel_connection_config(plan), **options).execute()

    engine = importlib.import_module("papermill.engines").NBClientEngine
    return type("Engine", (engine,), {"execute_managed_notebook": staticmethod(managed)})


def kernel_connection_config(plan: dict[str, Any]) -> Any:
    """Settings of the kernel's sockets. Every user of the node could connect to TCP ports and read the output;
    Python and R kernels support Unix sockets in a folder that only their user can enter."""
    config = importlib.import_module("traitlets.config").Config()
    socket_prefix = os.path.join(plan["folder"], "kernel")
    if plan["language"] in ("python", "r") and len(socket_prefix) <= MAX_SOCKET_PATH_LENGTH:
        config.KernelManager.update(transport="ipc", ip=socket_prefix)
    return config


def save_notebook(nb_man: Any, output: str) -> None:
    """Save atomically. Raises OSError."""
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
    """The text of a cell's output for the log."""
    if output.output_type == "stream":
        return "".join(output.text)
    if output.output_type == "error":
        return "\n".join(output.traceback) + "\n"
    plain = output.get("data", {}).get("text/plain")
    return "".join(plain) + "\n" if plain else ""


def one_line(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[:most] + "…"


def notebook_language(metadata: Any) -> str:
    """The language in the notebook's metadata, in lower case."""
    language = metadata.get("kernelspec", {}).get("language") or metadata.get("language_info", {}).get("name")
    return str(language or "python").lower()


def list_installed_kernels() -> list[str]:
    manager = importlib.import_module("jupyter_client.kernelspec").KernelSpecManager()
    return sorted(manager.find_kernel_specs())


def choose_kernel(requested: str | None, metadata: Any, language: str, names: list[str]) -> str:
    """The requested kernel; else, for Python, the job's environment; else the notebook's own kernel, or the
    default kernel of its language. Raises KernelMissing."""
    if requested:
        return require_kernel(requested, names)
    if language == "python" and os.environ.get("HELIOSTAT_ENVIRONMENT"):
        if "job" in names:
            return "job"
        raise KernelMissing("its environment has no ipykernel: add ipykernel to its requirements")
    own = metadata.get("kernelspec", {}).get("name")
    if own in names:
        return str(own)
    return require_kernel({"python": "python3", "r": "ir"}.get(language, own or language), names)


def require_kernel(name: str, names: list[str]) -> str:
    if name in names:
        return name
    raise KernelMissing(f"there is no kernel {name} on its node; available: {', '.join(names) or 'none'}")


def render_html(notebook: str, page: str) -> int:
    """Render the notebook as a self-contained HTML page."""
    exporter = importlib.import_module("nbconvert").HTMLExporter()
    text, _ = exporter.from_filename(notebook)
    write_atomically(page, text)
    return 0
