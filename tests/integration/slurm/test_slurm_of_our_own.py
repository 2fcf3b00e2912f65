"""`helio slurm setup` from nothing to a job, with the real daemons, and killed after each step of the way."""

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
from bench.slurm_up import PROGRAMS, _free_ports, _path

from heliostat.engines.slurm.setup.node_script import node_script
from heliostat.errors import Conflict
from heliostat.services.slurm_setup.verbs import Sources, apply_setup, plan_setup
from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root

pytestmark = needs_root
FIRST, SECOND = f"a{os.getpid()}", f"b{os.getpid()}"  # as their cgroups are the machine's
HOST = socket.gethostname().partition(".")[0]
NODES = """\
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
ONE_STEP = """\
import json, os, signal, sys
from pathlib import Path
from heliostat.errors import Conflict
from heliostat.services.slurm_setup.verbs import Sources, apply_setup
try:
    for sentence in apply_setup(Sources(Path(sys.argv[1]), sys.argv[2])):
        os.kill(os.getpid(), signal.SIGKILL)
except Conflict as stopped:
    print(json.dumps({"start": stopped.fields["start"]}))
else:
    print(json.dumps({"start": None}))
"""


class OurOwn:
    def __init__(self, folder: Path, devices: Path) -> None:
        self.folder, self.devices = folder, devices
        self.conf = folder / "p" / "etc" / "slurm"
        self.sources = Sources(folder / "nodes.toml", str(folder / "p"))
        self.env = {**os.environ, "PATH": _path(), "SLURM_CONF": str(self.conf / "slurm.conf")}
        self.killed = 0
        self._daemons: list[subprocess.Popen[bytes]] = []

    def describe(self) -> None:
        names = ("controller", "accounting", "database", "n1", "n2")
        ports = dict(zip(names, _free_ports(len(names)), strict=True))
        cpus = os.cpu_count() or 1
        text = NODES.format(first=FIRST, second=SECOND, host=HOST, cpus=cpus, devices=self.devices, **ports)
        self.sources.nodes.write_text(text)

    def up(self) -> None:
        """Step by step, each in a process that dies after it."""
        while self.killed < 50:
            stopped_at = self.step()
            if stopped_at == "":
                return
            if stopped_at is not None:
                self.start(stopped_at)
        raise AssertionError("it does the same step for ever")

    def step(self) -> str | None:
        """None: one was done. Else what it wants to have started, or nothing more."""
        words = [sys.executable, "-c", ONE_STEP, str(self.sources.nodes), self.sources.prefix]
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode == -signal.SIGKILL:
            self.killed += 1
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
        return self.step() != command

    def ask(self, *words: str) -> str:
        return subprocess.run(words, env=self.env, capture_output=True, text=True, check=True, timeout=60).stdout

    def logs(self) -> str:
        files = [*self.folder.glob("*.out"), *self.folder.glob("p/var/log/slurm/*.log")]
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-2000:]}" for file in files)

    def down(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for name in (FIRST, SECOND):
            for group in Path("/sys/fs/cgroup").glob(f"*/slurm_{name}"):
                words = ["find", str(group), "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"]
                subprocess.run(words, capture_output=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def own() -> Iterator[OurOwn]:
    if missing := [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]:
        pytest.skip(f"no Slurm to set up: not installed: {', '.join(missing)}")
    with (
        tempfile.TemporaryDirectory(prefix="hsetup-", ignore_cleanup_errors=True) as folder,
        _devices() as devices,
    ):
        Path(folder).chmod(0o755)
        own = OurOwn(Path(folder), devices)
        own.describe()
        own.conf.mkdir(parents=True)
        (own.conf / "slurm.conf.draft").write_text("of one that died while it wrote")
        try:
            own.up()
            yield own
        finally:
            own.down()


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


@pytest.fixture(scope="module")
def server(own: OurOwn) -> Iterator[RunningServer]:
    server = RunningServer('engine = "slurm"\n', own.env)
    yield server
    server.remove()


def test_it_was_killed_after_each_step_and_all_nodes_came_up(own: OurOwn) -> None:
    assert own.killed >= 8  # the key, four files, the database's folder, the database, the cluster
    ready = [FIRST, "idle", SECOND, "idle"]
    wait_for(
        lambda: own.ask("sinfo", "-h", "-N", "-o", "%N %T").split() == ready,
        "nodes",
        own.logs,
    )


def test_applied_once_more_it_changes_nothing(own: OurOwn) -> None:
    before = _contents(own.conf)
    assert list(apply_setup(own.sources)) == []
    assert _contents(own.conf) == before
    assert {one.state for one in plan_setup(own.sources).files} == {"same"}


def test_secrets_are_for_their_users_alone(own: OurOwn) -> None:
    key = own.folder / "p" / "etc" / "munge" / "munge.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o400
    assert key.owner() == "munge"
    conf = own.conf / "slurmdbd.conf"
    assert stat.S_IMODE(conf.stat().st_mode) == 0o600
    assert conf.owner() == "slurm"
    password = conf.read_text().partition("StoragePass=")[2].strip()
    assert len(password) >= 24
    assert password not in json.dumps([one.diff for one in plan_setup(own.sources).files])
    assert password not in own.logs()


def test_the_doctor_finds_nothing_wrong_with_it(server: RunningServer) -> None:
    assert server.ask("POST", "/slurm/apply").status == 200
    found = server.ask("POST", "/doctor").json["findings"]
    of_slurm = [one for one in found if one["check"] == "slurm"]
    assert of_slurm
    assert [one for one in of_slurm if one["level"] != "ok"] == []


def test_a_job_of_a_person_runs_with_its_gpus(
    own: OurOwn, server: RunningServer, two_people: list[Person]
) -> None:
    person = two_people[0]
    server.ask("GET", "/status", uid=person.uid)
    assert server.ask("POST", "/slurm/apply").status == 200
    job = server.run(
        person.uid,
        command=["sh", "-c", 'id -un; echo "$CUDA_VISIBLE_DEVICES"'],
        gpus=2,
        gpu_type="a100",
        memory="200M",
    )
    assert (job["state"], job["node"]) == ("completed", FIRST), own.logs()
    assert server.output(job["id"], person.uid).split() == [person.name, "0,1"]


def test_a_file_somebody_changed_or_made_is_left_alone(own: OurOwn) -> None:
    conf = own.conf / "slurm.conf"
    ours = conf.read_bytes()
    moments = conf.stat()
    try:
        for text, words in ((ours + b"KillWait=5\n", "changed by hand"), (b"ClusterName=old\n", "not made by")):
            conf.write_bytes(text)
            before = _contents(own.conf)
            with pytest.raises(Conflict, match=words) as refused:
                list(apply_setup(own.sources))
            assert refused.value.hint
            assert _contents(own.conf) == before
    finally:
        conf.write_bytes(ours)
        os.utime(conf, ns=(moments.st_atime_ns, moments.st_mtime_ns))


def test_a_change_shows_in_the_plan_and_wants_a_new_start_of_the_controller(own: OurOwn) -> None:
    old = (own.conf / "slurm.conf").read_text()
    nodes = own.sources.nodes
    nodes.write_text(nodes.read_text().replace('features = ["fast"]', 'features = ["fast", "new"]'))
    assert "Feature=fast,new" in "".join(one.diff for one in plan_setup(own.sources).files)
    assert own.step() is None
    assert [path.read_text() for path in own.conf.glob("slurm.conf.until-*")] == [old]
    with pytest.raises(Conflict, match="runs with the files of before") as stopped:
        list(apply_setup(own.sources))
    own.restart(stopped.value.fields["start"])
    assert list(apply_setup(own.sources)) == []
    assert "new" in own.ask("sinfo", "-h", "-n", FIRST, "-o", "%f")


def test_the_script_for_nodes_says_what_it_did_and_does_it_once(own: OurOwn) -> None:
    there = Sources(own.sources.nodes, str(own.folder / "node"))
    script = node_script(there.description(), there.layout, b"k" * 128)
    first = _run_script(script)
    assert first.returncode == 0, first.stderr
    assert "writing" in first.stdout
    key = Path(there.layout.key)
    assert (key.read_bytes(), stat.S_IMODE(key.stat().st_mode), key.owner()) == (b"k" * 128, 0o400, "munge")
    assert {path.name for path in Path(there.layout.conf_folder).iterdir()} == {
        "slurm.conf",
        "gres.conf",
        "cgroup.conf",
    }
    again = _run_script(script)
    assert "writing" not in again.stdout
    assert "nothing to change" in again.stdout
    (Path(there.layout.conf_folder) / "slurm.conf").write_text("ClusterName=old\n")
    refused = _run_script(script)
    assert refused.returncode == 1
    assert "was not made by Heliostat" in refused.stderr
    elsewhere = _run_script(script.replace(f"hosts={HOST}\n", "hosts=gpu7\n"))
    assert f"This is {HOST}, which is not in nodes.toml" in elsewhere.stderr


def _run_script(script: str) -> "subprocess.CompletedProcess[str]":
    """As it comes through ssh."""
    return subprocess.run(["sh"], input=script, capture_output=True, text=True, timeout=60, check=False)


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
