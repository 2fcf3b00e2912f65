"""A Slurm cluster of one node, private to the benchmarks, with made-up GPUs if asked for; the tests make a
larger one of it.

Everything lives in one folder and on free ports: munged, MariaDB, slurmdbd, slurmctld and one slurmd run in
the foreground as children of this process, so they are stopped by their own process ids; nothing of a Slurm
that is already on the machine is touched. All run as root, which spares the folder any change of owner.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

START_SECONDS = 60
STOP_SECONDS = 20
_PLAIN_FILES = "--innodb-use-native-aio=0"  # of the kernel's there are not enough for several at the same time
# A Unix socket's address holds 108 bytes; ours are "munge.sock" and "mariadb.sock" in the folder.
MAX_FOLDER_LENGTH = 90
PROGRAMS = (
    "munged",
    "mariadbd",
    "mariadb-install-db",
    "slurmdbd",
    "slurmctld",
    "slurmd",
    "sbatch",
    "setpriv",
)

# Tuned for many short jobs (https://slurm.schedmd.com/high_throughput.html): schedule at every end of a job
# and every second, gather no usage while a job runs, track processes cheaply. Two settings surprise:
# - Epilog: without one, slurmd answers "already complete" and the next job waits for the scheduler's timer of
#   one second (4 jobs/s instead of 25 on two cores); with one, the end of a job starts the scheduler itself.
# - default_queue_depth: looking at no more jobs than can start soon makes a pass cheaper (25 to 35 jobs/s).
# MinJobAge is the one setting that is ours: ended jobs stay in sight until they are counted.
SLURM_CONF = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmctldPort={controller_port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldDebug=error
SlurmctldLogFile={folder}/slurmctld.log
StateSaveLocation={folder}/state
SlurmdPidFile={folder}/slurmd.pid
SlurmdDebug=error
SlurmdLogFile={folder}/slurmd.log
SlurmdSpoolDir={folder}/spool
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
Epilog={epilog}
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,default_queue_depth={depth}
PriorityType=priority/basic
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={accounting_port}
AccountingStoragePass={folder}/munge.sock
MinJobAge=1800
MaxArraySize=100001
MaxJobCount=100000
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={accounting_port}
SlurmUser=root
DebugLevel=error
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database_port}
StorageUser=slurm
StoragePass=bench
StorageLoc=slurm_acct_db
"""

DATABASE_SQL = """\
create database slurm_acct_db;
create user slurm@'127.0.0.1' identified by 'bench';
create user slurm@localhost identified by 'bench';
grant all on slurm_acct_db.* to slurm@'127.0.0.1';
grant all on slurm_acct_db.* to slurm@localhost;
"""


class SlurmNotStarted(Exception):
    """A daemon of the private Slurm ended or did not answer in time."""


class PrivateSlurm:
    """`up()` starts the whole cluster from nothing, `down()` stops what `up()` started."""

    slurm_conf = SLURM_CONF
    nodes: tuple[str, ...] = ("n1",)
    extra_port_names: tuple[str, ...] = ()  # what else the configuration names and needs a port for

    def __init__(self, folder: Path, cpus: int, gpus: int = 0) -> None:
        self.folder = folder.resolve()
        self.cpus = cpus
        self.gpus = gpus
        self.env = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def unavailable_reason(self) -> str | None:
        """Why it cannot run here, or None."""
        if os.geteuid() != 0:
            return "needs root"
        absent = [name for name in PROGRAMS if shutil.which(name, path=search_path_with_sbin()) is None]
        if absent:
            return f"not installed: {', '.join(absent)}"
        if len(str(self.folder)) > MAX_FOLDER_LENGTH:
            return f"path too long for a Unix socket: {self.folder}"
        return None

    def up(self) -> None:
        try:
            ports = self.configure()
            self._start_munge()
            self._start_database(ports["database_port"])
            self._start_slurm()
        except BaseException:
            self.down()
            raise

    def configure(self) -> dict[str, int]:
        """Empty the folder and write the files Slurm reads; the ports it will use."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("state", "spool", "mariadb", "tmp"):
            (self.folder / name).mkdir(parents=True)
        names = ("controller_port", "accounting_port", "node_port", "database_port", *self.extra_port_names)
        ports = dict(zip(names, find_free_ports(len(names)), strict=True))
        values: dict[str, object] = {
            "folder": self.folder,
            "host": socket.gethostname().split(".")[0],
            "cpus": self.cpus,
            "depth": 2 * self.cpus,
            "epilog": shutil.which("true"),
            **ports,
        }
        (self.folder / "slurm.conf").write_text(self.slurm_conf.format(**values))
        if self.gpus:
            self._add_gpus()
        # slurmdbd finds its file beside slurm.conf, and refuses it when others may read it.
        _write_private(self.folder / "slurmdbd.conf", SLURMDBD_CONF.format(**values).encode())
        _write_private(self.folder / "munge.key", os.urandom(128))
        return ports

    def _add_gpus(self) -> None:
        """Device files of no driver: Slurm would not tell a job about plain files."""
        for number in range(self.gpus):
            os.mknod(self.folder / f"gpu{number}", stat.S_IFCHR | 0o666, os.makedev(195, 200 + number))
        (self.folder / "gres.conf").write_text(f"Name=gpu Type=a100 File={self.folder}/gpu[0-{self.gpus - 1}]\n")
        conf = self.folder / "slurm.conf"
        lines = conf.read_text().replace("NodeName=n1 ", f"NodeName=n1 Gres=gpu:a100:{self.gpus} ")
        conf.write_text("GresTypes=gpu\n" + lines)

    def down(self) -> None:
        """Stop in the reverse order of the start; safe to call twice."""
        for name in reversed(self._daemons):
            self.stop_daemon(name)
        self._daemons.clear()

    def stop_daemon(self, name: str) -> None:
        """Stop one of them; those it serves have to do without."""
        daemon = self._daemons[name]
        daemon.terminate()
        try:
            daemon.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def kill_daemon(self, name: str) -> None:
        """As a crash does: it cannot say goodbye or save anything."""
        self._daemons[name].kill()
        self._daemons[name].wait()

    def daemon_pid(self, name: str) -> int:
        return self._daemons[name].pid

    def run(self, *command: str | Path, text: str | None = None) -> str:
        """A command of Slurm's (or MariaDB's) to its end; its output."""
        argv = [str(word) for word in command]
        done = subprocess.run(argv, env=self.env, input=text, capture_output=True, text=True, check=False)
        try:
            done.check_returncode()
        except subprocess.CalledProcessError as error:
            error.add_note(done.stderr or done.stdout)
            raise
        return done.stdout

    def _start_munge(self) -> None:
        folder = self.folder
        files = {
            "socket": "sock",
            "key-file": "key",
            "pid-file": "pid",
            "log-file": "log",
            "seed-file": "seed",
        }
        options = [f"--{option}={folder}/munge.{suffix}" for option, suffix in files.items()]
        # --force: munged would refuse a folder below one that a group may write to.
        self._start("munged", "--foreground", "--force", *options)
        self._until("munged", lambda: self._answers("munge", "-n", "-S", folder / "munge.sock"))

    def _start_database(self, port: int) -> None:
        data, sock = self.folder / "mariadb", self.folder / "mariadb.sock"
        own_tmp = f"--tmpdir={self.folder}/tmp"  # a database that starts removes what others have there
        self.run(
            "mariadb-install-db",
            "--no-defaults",
            "--user=root",
            f"--datadir={data}",
            own_tmp,
            "--skip-test-db",
            _PLAIN_FILES,
            "--auth-root-authentication-method=normal",
        )
        self._start(
            "mariadbd",
            "--no-defaults",
            "--user=root",
            f"--datadir={data}",
            own_tmp,
            f"--socket={sock}",
            f"--port={port}",
            "--bind-address=127.0.0.1",
            _PLAIN_FILES,
            f"--pid-file={self.folder}/mariadb.pid",
        )
        self._until("mariadbd", lambda: self._answers("mariadb-admin", "--no-defaults", "-S", sock, "ping"))
        self.run("mariadb", "--no-defaults", "-S", sock, text=DATABASE_SQL)

    def _start_slurm(self) -> None:
        self.start_accounting()
        self.run("sacctmgr", "-i", "-Q", "add", "cluster", "bench")
        self.start_controller("-c")
        for node in self.nodes:
            self.start_node(node)
        ready = ["idle"] * len(self.nodes)
        self._until("slurmd n1", lambda: self.run("sinfo", "-h", "-N", "-o", "%T").split() == ready)

    def start_accounting(self) -> None:
        """It goes on where it was."""
        self._start("slurmdbd", "-D")
        self._until("slurmdbd", lambda: self._answers("sacctmgr", "-n", "list", "cluster"))

    def start_controller(self, *options: str) -> None:
        """Without `-c` it goes on where it was."""
        self._start("slurmctld", "-D", *options)
        self._until("slurmctld", lambda: "is UP" in self.run("scontrol", "ping"))

    def start_node(self, node: str) -> None:
        self._start("slurmd", "-D", "-N", node, name=f"slurmd {node}")

    def _start(self, program: str, *arguments: str, name: str | None = None) -> None:
        # With --pdeathsig no daemon outlives a benchmark that was killed.
        command = ["setpriv", "--pdeathsig", "TERM", program, *arguments]
        name = name or program
        with (self.folder / f"{name}.out").open("wb") as output:
            self._daemons[name] = subprocess.Popen(
                command,
                env={**self.env, "PATH": search_path_with_sbin()},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _until(self, name: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._daemons[name].poll() is not None:
                raise SlurmNotStarted(f"{name} ended, see {self.folder}/{name}.out")
            with suppress(subprocess.CalledProcessError):
                if ready():
                    return
            time.sleep(0.1)
        raise SlurmNotStarted(f"{name} did not answer in {START_SECONDS} s, see {self.folder}")

    def _answers(self, *command: str | Path) -> bool:
        self.run(*command)
        return True


def search_path_with_sbin() -> str:
    """Where daemons are: a user's PATH often leaves sbin out."""
    return f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)


def find_free_ports(count: int) -> list[int]:
    """Ports nobody listens on now. Below those the kernel gives to outgoing connections: seconds may pass until a
    daemon listens on its own, and none of them must take it meanwhile."""
    ports: set[int] = set()
    while len(ports) < count:
        port = random.randrange(10_000, 20_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.add(port)
    return list(ports)
