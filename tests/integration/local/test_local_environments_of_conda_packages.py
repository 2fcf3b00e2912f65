"""Real conda packages from a channel on disk, solved and installed by rattler in micromamba's place."""

import io
import json
import shutil
import subprocess
import sys
import tarfile
from hashlib import sha256
from pathlib import Path

import pytest

from heliostat.models.environments import EnvironmentSpec
from heliostat.runtimes.environment_build import EnvironmentRecipe, render_environment_build

ROOT = Path(__file__).parents[3]
APART = ROOT / ".venv" / "conda"
pytestmark = [
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="builds in bubblewrap, which is not installed"),
    pytest.mark.skipif(not APART.exists(), reason="py-rattler is not installed: scripts/install --test"),
]
PLACEHOLDER = "/placehold_placehold_placehold_placehold_placehold"
LINK_SCRIPT = '#!/bin/sh\necho "$PREFIX" > "$PREFIX/linked"\necho evil > OUTSIDE/evil\nexit 0\n'


class LocalChannel:
    """A folder of packages, as a web server would show it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("linux-64", "noarch"):
            (folder / name).mkdir(parents=True)
            self._write(name, {})
        self._packages: dict[str, object] = {}

    def add(self, name: str, version: str, files: dict[str, str], needs: tuple[str, ...] = ()) -> None:
        """Text files; each is told where it is installed by its placeholder."""
        about = {"name": name, "version": version, "build": "0", "build_number": 0, "depends": list(needs)}
        about |= {"subdir": "linux-64", "arch": "x86_64", "platform": "linux", "timestamp": 1_700_000_000_000}
        archive = self.folder / "linux-64" / f"{name}-{version}-0.tar.bz2"
        told = [_path(path, text) for path, text in files.items()]
        with tarfile.open(archive, "w:bz2") as tar:
            _put(tar, "info/index.json", json.dumps(about))
            _put(tar, "info/paths.json", json.dumps({"paths": told, "paths_version": 1}))
            _put(tar, "info/files", "".join(f"{path}\n" for path in files))
            for path, text in files.items():
                _put(tar, path, text)
        content = archive.read_bytes()
        self._packages[archive.name] = about | {"sha256": sha256(content).hexdigest(), "size": len(content)}
        self._write("linux-64", self._packages)

    def _write(self, subdir: str, packages: dict[str, object]) -> None:
        told = {"info": {"subdir": subdir}, "packages": packages, "packages.conda": {}, "repodata_version": 1}
        (self.folder / subdir / "repodata.json").write_text(json.dumps(told))


def _path(path: str, text: str) -> dict[str, object]:
    content = text.encode()
    told = {
        "_path": path,
        "path_type": "hardlink",
        "sha256": sha256(content).hexdigest(),
        "size_in_bytes": len(content),
    }
    return told | ({"prefix_placeholder": PLACEHOLDER, "file_mode": "text"} if PLACEHOLDER in text else {})


def _put(tar: tarfile.TarFile, path: str, text: str) -> None:
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode = len(text.encode()), 0o755
    tar.addfile(entry, io.BytesIO(text.encode()))


@pytest.fixture
def channel(tmp_path: Path) -> LocalChannel:
    (outside := tmp_path / "outside").mkdir()
    channel = LocalChannel(tmp_path / "channel")
    channel.add("base", "1.0", {"share/base": "base\n"})
    channel.add("base", "2.0", {"share/base": "base 2\n"})
    tool = f"#!/bin/sh\ncat {PLACEHOLDER}/share/base; echo {PLACEHOLDER}\n"
    channel.add("tool", "3.1", {"bin/tool": tool}, ("base <2",))
    script = LINK_SCRIPT.replace("OUTSIDE", str(outside))
    channel.add("hostile", "1", {"bin/.hostile-post-link.sh": script, "share/hostile": "here\n"})
    return channel


@pytest.fixture
def program(tmp_path: Path) -> Path:
    program = tmp_path / "micromamba"
    python = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    program.write_text(f'#!/bin/sh\nexec {python} "$STANDS_IN" "$@"\n')
    program.chmod(0o755)
    return program


def build(program: Path, channel: LocalChannel, *packages: str) -> "subprocess.CompletedProcess[str]":
    """In `work` beside the program, for a place that is elsewhere."""
    work = program.parent / "work"
    work.mkdir()
    packages_of = next(APART.glob("lib/python3*/site-packages"))
    wanted = {"channels": [f"file://{channel.folder}"], "dependencies": list(packages)}
    recipe = EnvironmentRecipe(
        spec=EnvironmentSpec("conda", (("environment.yml", json.dumps(wanted)),)),
        tool_path=str(program),
        python_path="",
        install_folder=str(program.parent / "final"),
        variables={  # the room shows every path that admins set
            "PYTHONHOME": sys.base_prefix,
            "PYTHONPATH": str(packages_of),
            "STANDS_IN": str(ROOT / "tests/support/fake_micromamba.py"),
            "CHANNEL": str(channel.folder),
        },
    )
    words = ["sh", "-c", render_environment_build(recipe)]
    return subprocess.run(words, cwd=work, capture_output=True, text=True, check=False, timeout=120)


def test_packages_are_solved_installed_and_know_the_place_they_will_be_found_at(
    program: Path, channel: LocalChannel
) -> None:
    done = build(program, channel, "tool")
    assert done.returncode == 0, done
    final = (program.parent / "work/room/env").rename(program.parent / "final")
    told = subprocess.run([final / "bin/tool"], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["base", str(final)]
    lock = json.loads((program.parent / "work/lock").read_text())
    assert [(one["name"], one["version"]) for one in lock] == [("base", "1.0"), ("tool", "3.1")]
    assert not (program.parent / "work/room/cache").exists()


def test_what_cannot_be_together_is_told_in_the_solvers_words(program: Path, channel: LocalChannel) -> None:
    done = build(program, channel, "tool", "base >=2")
    assert done.returncode == 1
    why = (program.parent / "work/why").read_text()
    assert "Could not solve" in why
    assert "base" in why
    assert not (program.parent / "work/room/env").exists()


def test_a_packages_own_script_writes_into_its_environment_and_nowhere_else(
    program: Path, channel: LocalChannel
) -> None:
    done = build(program, channel, "hostile")
    assert done.returncode == 0, done
    assert (program.parent / "work/room/env/linked").read_text() == f"{program.parent}/final\n"
    assert not (program.parent / "outside/evil").exists()
