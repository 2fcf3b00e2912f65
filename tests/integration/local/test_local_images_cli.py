"""`helio image`, as somebody types it, with real podman."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.running_server import RunningServer
from integration.unix_users import needs_root
from support.container_images import REGISTRY_PASSWORD, podman_skip_reason, running_registry

pytestmark = [needs_root, pytest.mark.skipif(podman_skip_reason() is not None, reason=podman_skip_reason() or "")]
PATIENCE_SECONDS = 150.0
FILE = 'FROM scratch\nCOPY busybox /bin/busybox\nRUN ["/bin/busybox", "touch", "/made"]\n'


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer('server.node_name = "here"\n')
    yield server
    server.remove()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Containerfile").write_text(FILE)
    shutil.copy(shutil.which("busybox") or "", tmp_path / "busybox")
    return tmp_path


def helio(server: RunningServer, *words: str, said: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(Path(sys.executable).with_name("helio")), "image", *words],
        env={**os.environ, "HELIOSTAT_HOME": str(server.home), "COLUMNS": "120"},
        input=said,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )


def test_a_folder_becomes_an_image_that_is_listed_shown_pushed_and_removed(
    server: RunningServer, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    done = helio(server, "build", "mine:1", str(folder))
    assert done.returncode == 0, done.stderr
    assert "STEP 2/3: COPY busybox" in done.stderr
    assert "mine:1 is ready. Use it: helio run --env image:mine:1" in done.stdout
    assert "mine:1" in helio(server, "list").stdout
    assert "COPY busybox /bin/busybox" in helio(server, "show", "mine:1").stdout
    if shutil.which("docker-registry") is not None:
        _push(server, tmp_path_factory.mktemp("registry"))
    assert helio(server, "remove", "mine:1").stdout == "mine:1 is removed.\n"
    gone = helio(server, "show", "mine:1")
    assert (gone.returncode, "Traceback" in gone.stderr) == (4, False)


def _push(server: RunningServer, folder: Path) -> None:
    with running_registry(folder, with_login=True) as address:
        words = ("push", "mine:1", f"{address}/lab/mine:1", "--username", "ann", "--password-stdin")
        wrong = helio(server, *words, said="nonsense\n")
        assert (wrong.returncode, "refused the login" in wrong.stdout) == (1, True), wrong
        done = helio(server, *words, "--json", said=f"{REGISTRY_PASSWORD}\n")
        assert done.returncode == 0, done
        assert json.loads(done.stdout)["pushed_digest"].startswith("sha256:")
        assert REGISTRY_PASSWORD not in done.stdout + done.stderr


def test_a_broken_file_exits_with_one_and_says_why(server: RunningServer, folder: Path) -> None:
    (folder / "Other").write_text("FROM scratch\nCOPY missing /x\n")
    done = helio(server, "build", "broken", str(folder), "--file", str(folder / "Other"))
    assert done.returncode == 1
    assert "The build of broken:latest failed" in done.stdout
    assert "missing" in done.stdout


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("build", "x"), "--env FILE --base IMAGE"),
        (("build", "x", "/nowhere"), "--file"),
        (("build", "x", "--env", "requirements.txt"), "--base"),
        (("build", "x", ".", "--env", "r.txt", "--base", "a"), "cannot be combined"),
        (("build", "UPPER", "--file", "FILE"), "torch:2"),
        (("push", "x", "nowhere"), "helio image list"),
        (("push", "x", "127.0.0.1:1/x", "--password-stdin"), "--username"),
    ],
)
def test_what_cannot_be_is_told_with_a_hint(
    server: RunningServer, folder: Path, words: tuple[str, ...], hint: str
) -> None:
    done = helio(server, *(str(folder / "Containerfile") if word == "FILE" else word for word in words))
    assert done.returncode != 0
    assert hint in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
