"""Machines with a systemd of their own, as an admin has them: copies of a small Debian that
`scripts/install-test-machine` has made, each with its name and address. They see one another, a shared folder, and
nothing else.

with machines("gpu1", "gpu2") as (one, two):
    one.run("helio --version")
    two.run("sh", "echo read from standard input")
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from integration.running_server import wait_for

REPOSITORY = Path(__file__).parents[2]
SHARED_FOLDER = "/srv/heliostat"
_DEBIAN = REPOSITORY / ".venv" / "machine"
_GROUPS = Path("/sys/fs/cgroup")
_CONTROLLERS = ("systemd", "unified", "memory", "pids", "cpu", "cpuacct", "cpuset", "devices", "freezer")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ENTER = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift; exec "$@"'
# A container may not change its groups of version 1 unless told; a machine may.
_OWN_GROUPS = """\
[Unit]
DefaultDependencies=no
Before=basic.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'cd /sys/fs/cgroup; for each in memory pids cpu* devices freezer; do \\
    mount -o remount,rw,bind $each; done'
[Install]
WantedBy=sysinit.target
"""


def machines_skip_reason() -> str | None:
    """Waits while the Debian is being made."""
    if os.geteuid() != 0:
        return "only root can boot a machine"
    if missing := [name for name in ("systemd-nspawn", "nsenter", "ip") if shutil.which(name) is None]:
        return f"not installed: {', '.join(missing)}"
    if not all((_GROUPS / name).is_dir() for name in _CONTROLLERS):
        return "machines are booted only where control groups are of version 1, beside the unified ones"
    if not _is_made():
        return "there is no Debian to boot: scripts/install-test-machine makes it (debootstrap, network)"
    if not (_DEBIAN / _python().relative_to("/")).exists() and _python().is_relative_to("/usr"):
        return f"the machine has no {_python()}, with which Heliostat is installed here"
    return None


def _is_made() -> bool:
    with contextlib.suppress(FileNotFoundError), Path(f"{_DEBIAN}.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
    return (_DEBIAN / ".ready").exists()


class SystemdMachine:
    def __init__(self, name: str, address: str, folder: Path, network: str) -> None:
        self.name, self.address, self._folder, self._network = name, address, folder, network
        self.root = folder / "root"
        self._nspawn: subprocess.Popen[bytes] | None = None

    def create(self, hosts: str) -> None:
        for part in ("root", "upper", "work"):
            (self._folder / part).mkdir(parents=True)
        layers = f"lowerdir={_DEBIAN},upperdir={self._folder}/upper,workdir={self._folder}/work"
        _do("mount", "-t", "overlay", "overlay", "-o", layers, str(self.root))
        files = {
            "etc/hostname": f"{self.name}\n",
            "etc/hosts": hosts,
            "etc/machine-id": "",
            "etc/systemd/network/10-host0.network": f"[Match]\nName=host0\n[Network]\nAddress={self.address}/24\n",
            "etc/systemd/system/own-groups.service": _OWN_GROUPS,
        }
        for path, text in files.items():
            (self.root / path).write_text(text)
        (self.root / "usr/local/bin/helio").symlink_to(REPOSITORY / ".venv/bin/helio")
        _do("chroot", str(self.root), "systemctl", "-q", "enable", "systemd-networkd", "own-groups")
        for folder in (self.root / "root", *(self._groups())):
            folder.mkdir(parents=True, exist_ok=True)
        (self.root / "root").chmod(0o711)  # people may reach a Python below it
        for which in ("cpuset.cpus", "cpuset.mems"):
            group = _GROUPS / "cpuset" / self._group
            for place in (group.parent, group):
                (place / which).write_text((_GROUPS / "cpuset" / which).read_text())

    def boot(self) -> None:
        """Until `is_up` one has to wait."""
        words = ["systemd-nspawn", "-q", "-D", str(self.root), "-M", self.name, f"--hostname={self.name}"]
        words += [
            "--register=no",
            "--keep-unit",
            "--console=pipe",
            "--resolv-conf=off",
            "--network-bridge=between",
        ]
        words += [f"--bind={self._folder.parent}/shared:{SHARED_FOLDER}", *map(_read_only, _places()), "-b"]
        inside = ["nsenter", f"--net=/run/netns/{self._network}", *words]
        with (self._folder / "console").open("ab") as console:
            self._nspawn = subprocess.Popen(
                ["/bin/sh", "-c", _ENTER, "sh", *map(str, self._groups()), "--", *inside],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def is_up(self) -> bool:
        assert self._nspawn is not None
        assert self._nspawn.poll() is None, f"{self.name} ended\n{self.console()}"
        if not self._init():
            return False
        return self.run("systemctl is-system-running", check=False).stdout.strip() in ("running", "degraded")

    def run(self, line: str, text: str = "", *, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """A line of the shell, as root; `text` is its standard input."""
        environment = [
            "env",
            "-i",
            f"PATH={_PATH}",
            "HOME=/root",
            f"HELIOSTAT_HOME={SHARED_FOLDER}",
            "LC_ALL=C.UTF-8",
        ]
        words = ["nsenter", "-t", str(self._init()), "-a", *environment, "sh", "-c", f"cd /root; {line}"]
        done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=240, check=False)
        assert not check or done.returncode == 0, (
            f"{self.name}: {line}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        )
        return done

    def console(self) -> str:
        return (self._folder / "console").read_text(errors="replace")[-2000:]

    def stop(self) -> None:
        """As if the plug were pulled."""
        if self._nspawn is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if init := self._init():
                os.kill(init, signal.SIGKILL)
        try:
            self._nspawn.wait(120)
        except subprocess.TimeoutExpired:
            self._nspawn.kill()
            self._nspawn.wait()
        self._nspawn = None

    def remove(self) -> None:
        self.stop()
        subprocess.run(["umount", "-R", str(self.root)], capture_output=True, check=False)
        for group in self._groups():
            subprocess.run(
                ["find", str(group), "-depth", "-type", "d", "-delete"], capture_output=True, check=False
            )
            with contextlib.suppress(OSError):
                group.parent.rmdir()

    @property
    def _group(self) -> str:
        return f"{self._network}/{self.name}"

    def _groups(self) -> list[Path]:
        return [_GROUPS / name / self._group for name in _CONTROLLERS]

    def _init(self) -> int:
        """The number of its first process; 0 as long as there is none."""
        pid = self._nspawn.pid if self._nspawn else 0
        with contextlib.suppress(FileNotFoundError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            return int(children[0]) if children else 0
        return 0


@contextlib.contextmanager
def booted_machines(*names: str) -> Iterator[list[SystemdMachine]]:
    """Booted, in a network of their own."""
    network = f"helio{os.getpid()}"
    with tempfile.TemporaryDirectory(prefix="hmachines-", ignore_cleanup_errors=True) as folder:
        (Path(folder) / "shared").mkdir()
        found = [
            SystemdMachine(name, f"10.77.0.{number}", Path(folder) / name, network)
            for number, name in enumerate(names, 11)
        ]
        hosts = "127.0.0.1 localhost\n" + "".join(f"{one.address} {one.name}\n" for one in found)
        _do("ip", "netns", "add", network)
        try:
            _do("ip", "-n", network, "link", "add", "between", "type", "bridge")
            _do("ip", "-n", network, "link", "set", "between", "up")
            for one in found:
                one.create(hosts)
                one.boot()
            for one in found:
                wait_for(one.is_up, f"{one.name} to boot", one.console)
            yield found
        finally:
            for one in found:
                one.remove()
            _do("ip", "netns", "delete", network)


def _places() -> list[Path]:
    """Of Heliostat and its Python, at the same places in the machine; what is in /usr it has itself."""
    base = Path(sys.base_prefix)
    return [REPOSITORY] if base.is_relative_to("/usr") else [REPOSITORY, base]


def _python() -> Path:
    return (REPOSITORY / ".venv/bin/python").resolve()


def _read_only(place: Path) -> str:
    return f"--bind-ro={place}"


def _do(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
