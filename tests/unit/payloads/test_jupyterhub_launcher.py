"""What runs in a job before a server of JupyterHub: it chooses a port, says it, and becomes the server."""

import json
import os
import subprocess
import sys
from pathlib import Path

from heliostat.payloads.archive import JUPYTERHUB_LAUNCHER, pack_program

TELLS = "import json, os; print(json.dumps({**os.environ}))"


def launched(folder: Path, *command: str, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": os.environ["PATH"], "HELIOSTAT_CHECKPOINT_DIR": str(folder), **more}
    (folder / "script").write_bytes(pack_program(JUPYTERHUB_LAUNCHER))
    words = ["/bin/sh", str(folder / "script"), *command]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_it_says_its_port_first_and_tells_the_server(tmp_path: Path) -> None:
    address = "http://127.0.0.1:0/user/ann/"
    ran = launched(tmp_path, sys.executable, "-c", TELLS, JUPYTERHUB_SERVICE_URL=address)
    first, second = ran.stdout.splitlines()
    port = int(first.removeprefix("heliostat: port "))
    assert 1024 <= port <= 65535
    assert json.loads(second)["JUPYTERHUB_SERVICE_URL"] == f"http://127.0.0.1:{port}/user/ann/"


def test_what_is_not_installed_is_said(tmp_path: Path) -> None:
    ran = launched(tmp_path, "jupyterhub-nothing", JUPYTERHUB_SERVICE_URL="http://127.0.0.1:0/")
    assert ran.returncode == 127
    assert "jupyterhub-nothing is not installed on the node of this job" in ran.stderr


def test_certificates_become_files_that_only_the_user_reads_and_leave_the_environment(tmp_path: Path) -> None:
    texts = json.dumps({"JUPYTERHUB_SSL_KEYFILE": "key", "JUPYTERHUB_SSL_CERTFILE": "certificate"})
    more = {"JUPYTERHUB_SERVICE_URL": "https://127.0.0.1:0/", "HELIOSTAT_HUB_CERTIFICATES": texts}
    ran = launched(tmp_path, sys.executable, "-c", TELLS, **more)
    environment = json.loads(ran.stdout.splitlines()[1])
    key = Path(environment["JUPYTERHUB_SSL_KEYFILE"])
    assert (key.read_text(), key.stat().st_mode & 0o777) == ("key", 0o600)
    assert key.parent.parent == tmp_path
    assert key.parent.stat().st_mode & 0o777 == 0o700
    assert "HELIOSTAT_HUB_CERTIFICATES" not in environment
