"""Runs inside a session: settings of Jupyter by which nobody else on the machine hears what its kernels print.

A kernel says everything to whoever connects to its port on the loopback, and every user of the machine can. Those
of Python and R can have sockets in a folder that only their user may enter instead; others stay at ports.
"""

from __future__ import annotations

import json
import os

MAX_SOCKET_FOLDER_LENGTH = 70  # Linux takes 107 bytes for the name of a socket
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
            return "tcp"  # there is no such kernel, as will be said

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
    print("Others can listen to the kernels of this old Jupyter: update jupyter-server.", file=sys.stderr)
else:
    c.MultiKernelManager.kernel_manager_class = "{module}.PrivateKernelManager"  # noqa: F821
"""
# Of whoever debugs, JupyterLab's debugger opens a port to which every user of the machine can send code.
NO_DEBUGGER = {"disabledExtensions": {"@jupyterlab/debugger-extension": True}}


def write_ipc_settings(folder: str) -> dict[str, str]:
    """Write them into `folder`; the variables by which a Jupyter server finds them."""
    place = os.path.join(folder, "jupyter-settings")
    os.makedirs(os.path.join(place, "labconfig"), exist_ok=True)
    texts = {
        KERNEL_MANAGER_MODULE + ".py": KERNEL_MANAGER_SOURCE.format(longest=MAX_SOCKET_FOLDER_LENGTH),
        "jupyter_server_config.py": SERVER_CONFIG_SOURCE.format(folder=place, module=KERNEL_MANAGER_MODULE),
        os.path.join("labconfig", "page_config.json"): json.dumps(NO_DEBUGGER),
    }
    for name, text in texts.items():
        with open(os.path.join(place, name), "w") as file:
            file.write(text)
    others = os.environ.get("JUPYTER_CONFIG_PATH")
    return {"JUPYTER_CONFIG_PATH": place + (os.pathsep + others if others else "")}
