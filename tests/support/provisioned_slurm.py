"""A Slurm that `helio slurm setup` has set up, of two nodes, with its daemons started as it says. Unlike that of
`slurm.py` it keeps every job in control groups.

own.step()                        # of the setting up, in a process that dies after it
own.ask("sinfo")                  # any of Slurm's tools
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.private_slurm import PROGRAMS, find_free_ports, search_path_with_sbin

from heliostat.provision.slurm.setup import SetupInput
from integration.running_server import wait_for

FIRST_NODE, SECOND_NODE = f"a{os.getpid()}", f"b{os.getpid()}"  # as their cgroups are the machine's
HOST = socket.gethostname().partition(".")[0]
NODES_TOML = """\
cluster = "ours"
controller = "{host}"
controller_address = "127.0.0.1"
ports = {{ controller = {controller}, accounting = {accounting}, database = {database} }}

[[nodes]]
name = "{first}"
cpus = {cpus}
memory = "1G"
gpus = {{ a100 = "{devices}/gpu[0-1]" }}
features = ["fast"]
host = "{host}"
address = "127.0.0.1"
port = {n1}

[[nodes]]
name = "{second}"
cpus = {cpus}
memory = "1G"
gpus = {{ t4 = "{devices}/gpu2" }}
host = "{host}"
address = "127.0.0.1"
port = {n2}

[[partitions]]
name = "main"
max_time = "7d"
"""
# Dies, as by kill -9, as soon as one step is done.
ONE_STEP_SCRIPT = """\
import json, os, signal, sys
from pathlib import Path
from heliostat.errors import Conflict
from heliostat.provision.slurm.setup import SetupInput, apply_setup
try:
    for sentence in apply_setup(SetupInput(Path(sys.argv[1]), sys.argv[2])):
        os.kill(os.getpid(), signal.SIGKILL)
except Conflict as stopped:
    print(json.dumps({"start": stopped.fields["start"]}))
else:
    print(json.dumps({"start": None}))
"""


class ProvisionedSlurm:
    def __init__(self, folder: Path, devices: Path) -> None:
        self.folder, self.devices = folder, devices
        self.conf_folder = folder / "p" / "etc" / "slurm"
        self.sources = SetupInput(folder / "nodes.toml", str(folder / "p"))
        self.env = {
            **os.environ,
            "PATH": search_path_with_sbin(),
            "SLURM_CONF": str(self.conf_folder / "slurm.conf"),
        }
        self.kill_count = 0
        self._daemons: list[subprocess.Popen[bytes]] = []

    def write_nodes_file(self) -> None:
        names = ("controller", "accounting", "database", "n1", "n2")
        ports = dict(zip(names, find_free_ports(len(names)), strict=True))
        cpus = os.cpu_count() or 1
        text = NODES_TOML.format(
            first=FIRST_NODE, second=SECOND_NODE, host=HOST, cpus=cpus, devices=self.devices, **ports
        )
        self.sources.nodes_file.write_text(text)

    def set_up(self) -> None:
        """Step by step, each in a process that dies after it."""
        while self.kill_count < 50:
            stopped_at = self.run_one_step()
            if stopped_at == "":
                return
            if stopped_at is not None:
                self.start(stopped_at)
        raise AssertionError("it does the same step for ever")

    def run_one_step(self) -> str | None:
        """None: one was done. Else what it wants to have started, or nothing more."""
        words = [sys.executable, "-c", ONE_STEP_SCRIPT, str(self.sources.nodes_file), self.sources.prefix]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == -signal.SIGKILL:
            self.kill_count += 1
            return None
        assert done.returncode == 0, done.stderr + self.logs()
        return json.loads(done.stdout)["start"] or ""

    def start(self, command: str) -> None:
        """Exactly what was said; until the next step finds it."""
        with (self.folder / f"{len(self._daemons)}.out").open("ab") as output:
            words = shlex.split(command)
            daemon = subprocess.Popen(words, env=self.env, cwd="/", stdout=output, stderr=subprocess.STDOUT)
        self._daemons.append(daemon)
        wait_for(lambda: self._goes_on(command, daemon), command, self.logs, seconds=180)

    def restart(self, command: str) -> None:
        old = next(one for one in self._daemons if one.args == shlex.split(command))
        old.terminate()
        old.wait(60)
        self._daemons.remove(old)
        self.start(command)

    def _goes_on(self, command: str, daemon: "subprocess.Popen[bytes]") -> bool:
        assert daemon.poll() is None, f"{command} ended\n{self.logs()}"
        return self.run_one_step() != command

    def run(self, *words: str) -> str:
        return subprocess.run(words, env=self.env, capture_output=True, text=True, check=True, timeout=60).stdout

    def logs(self) -> str:
        files = [*self.folder.glob("*.out"), *self.folder.glob("p/var/log/slurm/*.log")]
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-2000:]}" for file in files)

    def tear_down(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(120)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for name in (FIRST_NODE, SECOND_NODE):
            for group in Path("/sys/fs/cgroup").glob(f"*/slurm_{name}"):
                words = ["find", str(group), "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"]
                subprocess.run(words, capture_output=True, timeout=60, check=False)


@contextlib.contextmanager
def running_provisioned_slurm() -> Iterator[ProvisionedSlurm]:
    """Skips, saying why, where there is none to be had."""
    if missing := [name for name in PROGRAMS if shutil.which(name, path=search_path_with_sbin()) is None]:
        pytest.skip(f"no Slurm to set up: not installed: {', '.join(missing)}")
    with (
        tempfile.TemporaryDirectory(prefix="hsetup-", ignore_cleanup_errors=True) as folder,
        _devices() as devices,
    ):
        Path(folder).chmod(0o755)
        own = ProvisionedSlurm(Path(folder), devices)
        own.write_nodes_file()
        own.conf_folder.mkdir(parents=True)
        (own.conf_folder / "slurm.conf.draft").write_text("of one that died while it wrote")
        try:
            own.set_up()
            yield own
        finally:
            own.tear_down()


@contextlib.contextmanager
def _devices() -> Iterator[Path]:
    """Device files of no driver."""
    folder = Path(tempfile.mkdtemp(prefix="heliostat-", dir="/dev"))
    try:
        folder.chmod(0o755)
        for number in range(3):
            os.mknod(folder / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(195, 220 + number))
        yield folder
    finally:
        shutil.rmtree(folder)
