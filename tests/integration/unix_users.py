"""Unix users that exist for the time of a test."""

import contextlib
import fcntl
import os
import pwd
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes Unix users and acts as them, so it needs root")


@dataclass(frozen=True)
class Person:
    name: str
    uid: int
    gid: int
    home: Path


@contextlib.contextmanager
def people(*names: str, group: str | None = None) -> Iterator[list[Person]]:
    """New Unix users with a home only they can enter; all in the group too, if one is named."""
    made: list[str] = []
    try:
        if group is not None:
            _as_only_one("groupadd", group)
        for name in names:
            also = ["--groups", group] if group else []
            _as_only_one("useradd", "--create-home", "--shell", "/bin/sh", "-K", "HOME_MODE=0700", *also, name)
            made.append(name)
        yield [_person(name) for name in made]
    finally:
        for name in made:
            subprocess.run(["userdel", "--remove", "--force", name], capture_output=True, check=False)
        if group is not None:
            subprocess.run(["groupdel", group], capture_output=True, check=False)


def python_for(person: Person) -> tuple[str, dict[str, str]]:
    """A Python that this user may run with our packages, with its environment: ours may be closed to them."""
    sources = os.path.dirname(os.path.dirname(os.path.abspath(sys.modules["heliostat"].__file__ or "")))
    packages = f"{sources}:{sysconfig.get_path('purelib')}"
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": packages}
    for python in (sys.executable, "/usr/bin/python3"):
        command = ["/usr/sbin/runuser", "-u", person.name, "--", python, "-c", "import heliostat.server"]
        if subprocess.run(command, env=environment, capture_output=True, cwd="/", check=False).returncode == 0:
            return python, environment
    pytest.skip("no Python here that another Unix user may run with our packages")


def _person(name: str) -> Person:
    entry = pwd.getpwnam(name)
    return Person(name, entry.pw_uid, entry.pw_gid, Path(entry.pw_dir))


def _as_only_one(*command: str) -> None:
    """Test runs beside us may be changing the list of users too."""
    with open("/tmp/.heliostat-test-users", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(command, check=True, capture_output=True)
