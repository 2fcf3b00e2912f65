"""Kernel IPC: Jupyter settings that keep other users of the node from reading the output of kernels.

By default a kernel sends its output to every client of its TCP port on the loopback, which any user of the node
can connect to. Python and R kernels get Unix sockets in a folder that only their user can enter; others keep TCP
ports.
"""

from __future__ import annotations

import json
import os

MAX_SOCKET_FOLDER_LENGTH = 70  # the limit of Linux for a socket path is 107 bytes
KERNEL_MANAGER_MODULE = "heliostat_kernels"
KERNEL_MANAGER_SOURCE = """
import atexit, os, shutil, tempfile, uuid

from jupyter_server.services.kernels.kernelmanager import ServerKernelManager
from traitlets import default

here = os.path.dirname(os.path.abspath(__file__))
folder = tempfile.mkdtemp(prefix="kernels-", dir=here if len(here) <= {longest} else "/tmp")
atexit.register(shutil.rmtree, folder, ignore_errors=True)


class PrivateKernelManager(ServerKernelManager):
    @default("transport")
    def _default_transport(self):
        try:
            return "ipc" if self.kernel_spec.language.lower() in ("python", "r") else "tcp"
        except Exception:
            return "tcp"  # unknown kernel: Jupyter reports it later

    @default("ip")
    def _default_ip(self):
        return os.path.join(folder, uuid.uuid4().hex[:12]) if self.transport == "ipc" else "127.0.0.1"
"""
SERVER_CONFIG_SOURCE = """
import sys

sys.path.append({folder!r})
try:
    import {module}
except ImportError:
    print("Other users of this node can read the output of kernels: update jupyter-server.", file=sys.stderr)
else:
    c.MultiKernelManager.kernel_manager_class = "{module}.PrivateKernelManager"  # noqa: F821
"""
# JupyterLab's debugger opens a TCP port to which every user of the node could send code.
NO_DEBUGGER = {"disabledExtensions": {"@jupyterlab/debugger-extension": True}}


def write_ipc_settings(folder: str) -> dict[str, str]:
    """Write the settings into `folder`. Returns the environment variables by which Jupyter finds them."""
    settings_folder = os.path.join(folder, "jupyter-settings")
    os.makedirs(os.path.join(settings_folder, "labconfig"), exist_ok=True)
    texts = {
        KERNEL_MANAGER_MODULE + ".py": KERNEL_MANAGER_SOURCE.format(longest=MAX_SOCKET_FOLDER_LENGTH),
        "jupyter_server_config.py": SERVER_CONFIG_SOURCE.format(
            folder=settings_folder, module=KERNEL_MANAGER_MODULE
        ),
        os.path.join("labconfig", "page_config.json"): json.dumps(NO_DEBUGGER),
    }
    for name, text in texts.items():
        with open(os.path.join(settings_folder, name), "w") as file:
            file.write(text)
    others = os.environ.get("JUPYTER_CONFIG_PATH")
    return {"JUPYTER_CONFIG_PATH": settings_folder + (os.pathsep + others if others else "")}
