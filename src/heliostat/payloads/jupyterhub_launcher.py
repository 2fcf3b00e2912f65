"""JupyterHub launcher: chooses a port inside a job and starts the single-user server of JupyterHub there.

usage: jupyterhub-launcher COMMAND...
The first line of the log is the port. The hub uses it only after checking that this job listens there.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from urllib.parse import urlsplit

from heliostat.payloads.kernel_ipc import write_ipc_settings

MISSING_MESSAGE = """{} is not installed on the node of this job.
An admin of the hub can set its path on the nodes (c.Spawner.cmd = ["/opt/hub/bin/jupyterhub-singleuser"]),
or offer an environment with jupyterhub and jupyterlab (c.HeliostatSpawner.environments)."""


def main(arguments: list[str]) -> None:
    address = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
    host = address.hostname or "127.0.0.1"
    port = find_free_port(host)
    netloc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    os.environ["JUPYTERHUB_SERVICE_URL"] = address._replace(netloc=netloc).geturl()
    os.environ.update(write_certificates(os.environ.pop("HELIOSTAT_HUB_CERTIFICATES", "")))
    os.environ.update(write_ipc_settings(os.environ["HELIOSTAT_CHECKPOINT_DIR"]))
    print("heliostat: port", port, flush=True)
    try:
        os.execvp(arguments[0], arguments)  # noqa: S606 - no shell
    except OSError:
        print(MISSING_MESSAGE.format(arguments[0]), file=sys.stderr)
        sys.exit(127)


def find_free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def write_certificates(text: str) -> dict[str, str]:
    """Certificates for the connection between hub and server, as files that only the user can read."""
    if not text:
        return {}
    folder = tempfile.mkdtemp(prefix="jupyterhub-", dir=os.environ.get("HELIOSTAT_CHECKPOINT_DIR"))
    paths = {}
    for name, content in json.loads(text).items():
        paths[name] = os.path.join(folder, name)
        with os.fdopen(os.open(paths[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(content)
    return paths
