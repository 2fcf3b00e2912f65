"""A node of the test Slurm that joins by itself: its slurmd runs in a network of its own.

Slurm knows one dynamic node per address, so a machine with other nodes needs a second address for it.
"""

import contextlib
import os
import stat
import subprocess
from collections.abc import Iterator

import pytest

from support.slurm_cluster import SlurmTestCluster

NODE_NAME = "d1"
CPUS, MEMORY_MIB = 4, 4000
_HERE, _THERE = "10.213.77.1", "10.213.77.2"
# What an admin would put on the node: verb, node, and all that follows are the words of the node.
_COMMAND = """\
#!/bin/sh
set -eu
verb=$1 node=$2
shift 2
pid={cluster}/slurmd-$node.pid
case $verb in
stop)
    [ -s "$pid" ] || exit 0
    running=$(cat "$pid")
    kill "$running" 2>/dev/null || exit 0
    for _ in $(seq 100); do kill -0 "$running" 2>/dev/null || exit 0; sleep 0.1; done
    exit 1 ;;
start)
    [ ! -e {folder}/broken ] || {{ echo "no such unit" >&2; exit 5; }}
    if [ -s "$pid" ] && kill -0 "$(cat "$pid")" 2>/dev/null; then exit 0; fi
    rm -f "$pid"
    SLURM_CONF={folder}/slurm.conf exec nsenter --net=/run/netns/{namespace} slurmd -Z -N "$node" --conf "$*" ;;
esac
"""


class DynamicSlurmNode:
    """`d1`, with up to four A100 and four T4."""

    def __init__(self, cluster: SlurmTestCluster) -> None:
        self._cluster = cluster
        self.namespace = f"helio{os.getpid()}"
        self.folder = cluster.folder / "dynamic"
        self.command = self.folder / "slurm-node"

    def up(self, gpus: str) -> None:
        """Raises CalledProcessError where networks cannot be made."""
        self._make_network()
        self._write_files()
        self.start(gpus)

    def down(self) -> None:
        """Whatever there is of it."""
        if self.command.exists():
            self.run_control_command("stop")
        with contextlib.suppress(subprocess.CalledProcessError):
            self._cluster.run("scontrol", "delete", f"nodename={NODE_NAME}")
        subprocess.run(["ip", "netns", "del", self.namespace], capture_output=True, check=False)

    def start(self, gpus: str) -> None:
        self.run_control_command("start", f"CPUs={CPUS} RealMemory={MEMORY_MIB} Gres={gpus}")

    def run_control_command(self, verb: str, *words: str) -> None:
        # Its own process group and no pipes: the slurmd it leaves behind holds on to nothing of ours.
        argv = [str(self.command), verb, NODE_NAME, *words]
        subprocess.run(
            argv, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )

    def _make_network(self) -> None:
        outer, inner = f"h{os.getpid()}a", f"h{os.getpid()}b"
        inside = ["ip", "-n", self.namespace]
        for argv in (
            ["ip", "netns", "add", self.namespace],
            ["ip", "link", "add", outer, "type", "veth", "peer", "name", inner, "netns", self.namespace],
            ["ip", "addr", "add", f"{_HERE}/30", "dev", outer],
            ["ip", "link", "set", outer, "up"],
            [*inside, "addr", "add", f"{_THERE}/30", "dev", inner],
            [*inside, "link", "set", inner, "up"],
            [*inside, "link", "set", "lo", "up"],
            [*inside, "route", "add", "default", "via", _HERE],
        ):
            subprocess.run(argv, check=True, capture_output=True)

    def _write_files(self) -> None:
        self.folder.mkdir()
        conf = (self._cluster.folder / "slurm.conf").read_text()
        (self.folder / "slurm.conf").write_text(conf.replace("(127.0.0.1)\nSlurmUser", f"({_HERE})\nSlurmUser"))
        (self.folder / "gres.conf").write_text(self._make_gpus("a100", 0) + self._make_gpus("t4", 4))
        values = {"folder": self.folder, "cluster": self._cluster.folder, "namespace": self.namespace}
        self.command.write_text(_COMMAND.format(**values))
        self.command.chmod(0o755)

    def _make_gpus(self, kind: str, first: int) -> str:
        for number in range(first, first + 4):
            os.mknod(self.folder / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(195, 200 + number))
        return f"NodeName={NODE_NAME} Name=gpu Type={kind} File={self.folder}/gpu[{first}-{first + 3}]\n"


@contextlib.contextmanager
def running_dynamic_node(cluster: SlurmTestCluster, gpus: str) -> Iterator[DynamicSlurmNode]:
    """Skips, saying why, where no network can be made for it."""
    node = DynamicSlurmNode(cluster)
    try:
        try:
            node.up(gpus)
        except (subprocess.CalledProcessError, OSError) as error:
            said = getattr(error, "stderr", None) or b""
            pytest.skip(f"no dynamic node to test with: {error}: {said.decode(errors='replace').strip()}")
        yield node
    finally:
        node.down()
