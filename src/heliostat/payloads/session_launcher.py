"""Session launcher: starts the web server of a session or service inside its job, and reports its port.

usage: session-launcher jupyter | terminal | vscode | rstudio | custom COMMAND... | service COMMAND...
Its only inputs are these arguments and the environment variables of the job.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from heliostat.payloads.auth_shim import is_listening, serve_auth_shim, socket_path
from heliostat.payloads.kernel_ipc import MAX_SOCKET_FOLDER_LENGTH, write_ipc_settings
from heliostat.payloads.kernel_specs import write_kernel_specs

MAX_START_ATTEMPTS = 5  # another process may take the port before the server binds it
EARLY_EXIT_SECONDS = 20.0
NO_JUPYTER_MESSAGE = """JupyterLab is not installed on the node of this session, and could not be built.
Add a line jupyterlab to your requirements file: helio notebook --env requirements.txt;
or put an environment with jupyterlab on the PATH of the session;
or ask an admin to install uv (pip install 'heliostat[environments]') or to set jupyter_command in [sessions]."""
NO_VSCODE_MESSAGE = """code-server (VS Code in the browser) is not installed on the node of this session.
Ask an admin to install it on every node (https://coder.com/docs/code-server/install), or put it on the PATH:
helio session start --env PATH=$HOME/.local/bin:/usr/local/bin:/usr/bin:/bin vscode"""
NO_RSTUDIO_MESSAGE = """RStudio Server (rserver) is not installed on the node of this session.
Ask an admin to install it on every node (https://posit.co/download/rstudio-server). For R in JupyterLab, R and its
package IRkernel are enough."""
VSCODE_PROGRAMS = ("code-server",)
RSTUDIO_PROGRAMS = ("rserver", "/usr/lib/rstudio-server/bin/rserver")
TERMINAL_LAYOUT = {
    "layout-restorer:data": {
        "main": {
            "dock": {"type": "tab-area", "currentIndex": 0, "widgets": ["terminal:1"]},
            "current": "terminal:1",
        },
        "left": {"collapsed": True},
        "right": {"collapsed": True},
    },
    "terminal:1": {"data": {"name": "1"}},
}


def main(arguments: list[str]) -> None:
    app, command = arguments[0], arguments[1:]
    signal.signal(signal.SIGTERM, lambda *_: None)  # the server gets it too; wait for its end
    default = tempfile.gettempdir()
    is_short = len(default) <= MAX_SOCKET_FOLDER_LENGTH - len("/session-12345678/jupyter-settings")
    folder = tempfile.mkdtemp(prefix="session-", dir=default if is_short else "/tmp")  # noqa: S108 - private to this user
    try:
        sys.exit(serve(app, command, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def serve(app: str, command: list[str], folder: str) -> int:
    if app in ("vscode", "rstudio"):
        return serve_behind_shim(vscode_argv(folder) if app == "vscode" else rstudio_argv(folder), folder)
    for _ in range(MAX_START_ATTEMPTS):
        port, started_at = find_free_port(), time.monotonic()
        argv = server_argv(app, command, port, folder)
        report_port(port)
        status = start_server(argv, server_variables(app, port, folder)).wait()
        if status == 0 or time.monotonic() - started_at > EARLY_EXIT_SECONDS or not is_port_taken(port):
            return as_exit_code(status)
        print(f"Port {port} is in use by another process; trying another port.", file=sys.stderr, flush=True)
    return 1


def start_server(argv: list[str], variables: dict[str, str]) -> subprocess.Popen[bytes]:
    """Exits as a shell does if it cannot be started."""
    try:
        return subprocess.Popen(argv, env=variables)
    except FileNotFoundError:
        print(f"{argv[0]}: not found", file=sys.stderr)
        sys.exit(127)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(126)


def serve_behind_shim(argv: list[str], folder: str) -> int:
    process = subprocess.Popen(argv)
    while process.poll() is None and not is_listening(socket_path(folder)):
        time.sleep(0.1)
    if process.poll() is None:
        report_port(serve_auth_shim(socket_path(folder), os.environ["HELIOSTAT_SESSION_TOKEN"]))
    return as_exit_code(process.wait())


def as_exit_code(status: int) -> int:
    return status if status >= 0 else 128 - status


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_port_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def report_port(port: int) -> None:
    """Write the port into the job's folder. The server checks that this job listens there before it is used."""
    path = os.path.join(os.environ["HELIOSTAT_CHECKPOINT_DIR"], ".session-" + os.environ["HELIOSTAT_ATTEMPT"])
    with open(path + ".new", "w") as file:
        file.write(f"{port}\n")
    os.replace(path + ".new", path)


def url_prefix() -> str:
    return "/s/{}/".format(os.environ.get("HELIOSTAT_SERVICE") or os.environ["HELIOSTAT_JOB_ID"])


def server_variables(app: str, port: int, folder: str) -> dict[str, str]:
    more = {"PORT": str(port), "HELIOSTAT_SESSION_PREFIX": url_prefix()}
    if app not in ("custom", "service"):
        others = os.environ.get("JUPYTER_PATH")
        more["JUPYTER_PATH"] = folder + (os.pathsep + others if others else "")
        more["JUPYTER_TOKEN"] = os.environ["HELIOSTAT_SESSION_TOKEN"]
        more.update(write_ipc_settings(folder))
    if app == "terminal":
        more["JUPYTERLAB_WORKSPACES_DIR"] = os.path.join(folder, "workspaces")
    return dict(os.environ, **more)


def server_argv(app: str, command: list[str], port: int, folder: str) -> list[str]:
    if app == "service":
        return [word.replace("{port}", str(port)) for word in command]
    return command if app == "custom" else jupyter_argv(app, port, folder)


def jupyter_argv(app: str, port: int, folder: str) -> list[str]:
    program = find_program(NO_JUPYTER_MESSAGE, "jupyter-lab", os.environ.get("HELIOSTAT_JUPYTER", ""))
    write_kernel_specs(folder, program)
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.base_url": url_prefix(),
        "ServerApp.root_dir": os.getcwd(),
        "ServerApp.allow_remote_access": "True",
        "ServerApp.allow_root": "True",
        "ServerApp.quit_button": "False",
    }
    if app == "terminal":
        options["LabApp.default_url"] = write_terminal_workspace(folder)
    return [program, "--no-browser"] + ["--{}={}".format(*pair) for pair in options.items()]


def find_program(hint: str, *names: str) -> str:
    for name in names:
        path = shutil.which(name) if name else None
        if path:
            return path
    print(hint, file=sys.stderr)
    sys.exit(127)


def write_terminal_workspace(folder: str) -> str:
    """Create a JupyterLab workspace with only a terminal; return its URL path."""
    workspaces = os.path.join(folder, "workspaces")
    os.makedirs(workspaces, exist_ok=True)
    text = json.dumps({"data": TERMINAL_LAYOUT, "metadata": {"id": "terminal"}})
    with open(
        os.path.join(workspaces, "terminal-4e68.jupyterlab-workspace"), "w"
    ) as file:  # as JupyterLab names it
        file.write(text)
    return "/lab/workspaces/terminal"


def vscode_argv(folder: str) -> list[str]:
    """Runs behind the auth shim, with its own configuration file: that of the user may set another address."""
    program = find_program(NO_VSCODE_MESSAGE, *VSCODE_PROGRAMS)
    settings = os.path.join(folder, "code-server.yaml")
    with open(settings, "w") as file:
        file.write("auth: none\n")
    where = ["--socket", socket_path(folder), "--socket-mode", "600", "--auth", "none", "--config", settings]
    return [program, *where, "--disable-telemetry", "--disable-update-check", "--ignore-last-opened", os.getcwd()]


def rstudio_argv(folder: str) -> list[str]:
    """Runs behind the auth shim. Server files are removed with the session; the user's files stay in the home."""
    program = find_program(NO_RSTUDIO_MESSAGE, *RSTUDIO_PROGRAMS)
    database, key = os.path.join(folder, "database.conf"), os.path.join(folder, "cookie-key")
    with open(database, "w") as file:
        file.write(f"provider=sqlite\ndirectory={folder}\n")
    with open(key, "w") as file:
        file.write(os.urandom(32).hex())
    os.chmod(key, 0o600)
    options = {
        "server-daemonize": 0,
        "server-user": os.environ["USER"],
        "server-data-dir": folder,
        "database-config-file": database,
        "secure-cookie-key-file": key,
        "auth-none": 1,
        "www-socket": socket_path(folder),
        "www-root-path": url_prefix(),
        "www-frame-origin": "same",
        "www-verify-user-agent": 0,
    }
    return [program] + ["--{}={}".format(*pair) for pair in options.items()]
