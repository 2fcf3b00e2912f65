"""A real Slurm of four nodes with made-up GPUs, for as long as the tests run.

slurm.submit("sleep 60")          # as plain `sbatch` does
slurm.end("slurmctld")            # and then
slurm.start_controller()          # goes on where it was
"""

import contextlib
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.private_slurm import PrivateSlurm

GPUS_PER_NODE = 4
# Looks for work at once and gives up soon, so that tests need not wait. Users need an account.
SLURM_CONF = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
SlurmctldPort={controller_port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldDebug=info
SlurmctldLogFile={folder}/slurmctld.log
StateSaveLocation={folder}/state
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdDebug=info
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdSpoolDir={folder}/spool/%n
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
MessageTimeout=5
KillWait=2
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
Epilog={epilog}
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
DefMemPerCPU=100
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
PriorityType=priority/multifactor
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting_port}
AccountingStoragePass={folder}/munge.sock
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos
JobRequeue=0
MaxNodeCount=16
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={n1} CPUs=16 RealMemory=16000 Gres=gpu:a100:4 Feature=fast
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={n2} CPUs=16 RealMemory=16000 Gres=gpu:a100:4
NodeName=n3 NodeHostname={host} NodeAddr=127.0.0.1 Port={n3} CPUs=16 RealMemory=16000 Gres=gpu:a100:4
NodeName=n4 NodeHostname={host} NodeAddr=127.0.0.1 Port={n4} CPUs=16 RealMemory=16000 Gres=gpu:t4:4
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class SlurmTestCluster(PrivateSlurm):
    """Four nodes on one machine; three have A100s, the last has T4s."""

    __test__ = False  # pytest: not a test

    slurm_conf = SLURM_CONF
    nodes = ("n1", "n2", "n3", "n4")
    extra_port_names = nodes

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, cpus=16)
        self._admitted: set[str] = set()

    def configure(self) -> dict[str, int]:
        ports = super().configure()
        lines = [self._make_gpus(node) for node in self.nodes]
        (self.folder / "gres.conf").write_text("".join(lines))
        return ports

    def up(self) -> None:
        super().up()
        self.run("sacctmgr", "-i", "-Q", "add", "account", "lab")

    def add_user(self, user: str) -> None:
        """Slurm lets them submit. Tests share it: who is there already stays."""
        if user not in self._admitted:
            self.run("sacctmgr", "-i", "-Q", "add", "user", user, "account=lab")
            self._admitted.add(user)

    def remove_user(self, user: str) -> None:
        self.run("sacctmgr", "-i", "-Q", "delete", "user", f"name={user}")
        self._admitted.discard(user)

    def resume_nodes(self) -> None:
        for node in self.nodes:
            with contextlib.suppress(subprocess.CalledProcessError):  # it is in use already
                self.run("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def submit(self, script: str, *options: str) -> int:
        """As somebody does who knows nothing of Heliostat."""
        return int(self.run("sbatch", "--parsable", "-o/dev/null", *options, "--wrap", script))

    def cancel_all_jobs(self) -> None:
        """So that the next test finds it empty."""
        with contextlib.suppress(subprocess.CalledProcessError):
            self.run("scancel", "--state=PENDING")
            self.run("scancel", "--full", "--signal=KILL", "--state=RUNNING")
            self.run("scancel", "--user=root")

    def _make_gpus(self, node: str) -> str:
        """Device files of no driver: of plain files Slurm would not tell the job."""
        folder = self.folder / "gpus" / node
        folder.mkdir(parents=True)
        for number in range(GPUS_PER_NODE):
            os.mknod(folder / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(195, 200 + number))
        kind = "t4" if node == "n4" else "a100"
        return f"NodeName={node} Name=gpu Type={kind} File={folder}/gpu[0-{GPUS_PER_NODE - 1}]\n"


@contextlib.contextmanager
def running_slurm() -> Iterator[SlurmTestCluster]:
    """Skips, saying why, where there is none to be had."""
    with tempfile.TemporaryDirectory(prefix="hslurm-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        cluster = SlurmTestCluster(Path(folder) / "s")
        if missing := cluster.unavailable_reason():
            pytest.skip(f"no Slurm to test with: {missing}")
        cluster.up()
        try:
            yield cluster
        finally:
            cluster.cancel_all_jobs()
            cluster.down()
