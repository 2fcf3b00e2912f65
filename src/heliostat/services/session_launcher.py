"""Runs inside a session, as its user, by whatever Python 3 the node has: starts the web server and says its port.

usage: session_launcher.py jupyter | session_launcher.py custom COMMAND...
It is sent along as the job's script, so it knows nothing of Heliostat but the environment of a job.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

TRIES = 5  # somebody may take the port between our looking and the server's binding
EARLY_SECONDS = 20.0


def main() -> None:
    app, words = sys.argv[1], sys.argv[2:]
    signal.signal(signal.SIGTERM, lambda *_: None)  # the server gets it as well, and we wait for it
    for _ in range(TRIES):
        port, began = free_port(), time.monotonic()
        tell(port)
        process = subprocess.Popen(command(app, words, port), env=environment(port))
        status = process.wait()
        if status == 0 or time.monotonic() - began > EARLY_SECONDS or not is_taken(port):
            sys.exit(status if status >= 0 else 128 - status)
        print(f"Port {port} was taken meanwhile; trying another.", file=sys.stderr, flush=True)
    sys.exit(1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def tell(port: int) -> None:
    """In a file of the job's own; what it says is believed only if this job listens there."""
    path = os.path.join(os.environ["HELIOSTAT_CHECKPOINT_DIR"], ".session-" + os.environ["HELIOSTAT_ATTEMPT"])
    with open(path + ".new", "w") as file:
        file.write(f"{port}\n")
    os.replace(path + ".new", path)


def prefix() -> str:
    return "/s/{}/".format(os.environ.get("HELIOSTAT_SERVICE") or os.environ["HELIOSTAT_JOB_ID"])


def environment(port: int) -> dict[str, str]:
    more = {"PORT": str(port), "HELIOSTAT_SESSION_PREFIX": prefix()}
    return dict(os.environ, JUPYTER_TOKEN=os.environ["HELIOSTAT_SESSION_TOKEN"], **more)


def command(app: str, words: list[str], port: int) -> list[str]:
    if app == "service":
        return [word.replace("{port}", str(port)) for word in words]
    if app != "jupyter":
        return words
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.base_url": prefix(),
        "ServerApp.root_dir": os.getcwd(),
        "ServerApp.allow_remote_access": "True",
        "ServerApp.allow_root": "True",
        "ServerApp.quit_button": "False",
    }
    return jupyter() + ["--no-browser"] + ["--{}={}".format(*pair) for pair in options.items()]


def jupyter() -> list[str]:
    """Of the job's own environment, else as the admins say."""
    found = shutil.which("jupyter-lab") or shutil.which(os.environ.get("HELIOSTAT_JUPYTER", ""))
    if not found:
        print(
            "JupyterLab is not installed where this session runs.\n"
            "Bring it along: helio notebook --env requirements.txt, with a line jupyterlab in that file;\n"
            "or put an environment on its PATH in which pip install jupyterlab was run;\n"
            "or ask an admin to set jupyter_command in cluster.toml.",
            file=sys.stderr,
        )
        sys.exit(127)
    return [found]


if __name__ == "__main__":
    main()
