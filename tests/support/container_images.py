"""An image without a registry: a busybox, put straight into the store of a user."""

import contextlib
import io
import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from support.waiting import wait_until

TEST_IMAGE = "localhost/busybox:latest"
REGISTRY_PASSWORD = "open-sesame-4711"
_HASHED = "$2y$05$abcdefghijklmnopqrstuud2L8crwTyOxFi9P3yYYIG5bIITxThTG"  # by bcrypt
_WORDS = (
    "sh",
    "cat",
    "id",
    "ls",
    "echo",
    "env",
    "sleep",
    "touch",
    "true",
    "ps",
    "grep",
    "dd",
    "tail",
    "test",
    "kill",
    "readlink",
    "wc",
    "head",
)


def podman_skip_reason() -> str | None:
    missing = [name for name in ("podman", "runc", "newuidmap", "busybox") if shutil.which(name) is None]
    return f"needs {', '.join(missing)}: scripts/install-test-parts" if missing else None


def import_test_image(home: Path, user: str, image: str = TEST_IMAGE, what: str = "the-image") -> None:
    """Into the images of that Unix user, as a download would have."""
    store = home / "images" / user
    store.parent.mkdir(exist_ok=True)
    store.parent.chmod(0o711)
    shutil.chown(store.parent, home.stat().st_uid)
    import_image_into_store(store, user, image, what)


def import_image_into_store(store: Path, user: str, image: str = TEST_IMAGE, what: str = "the-image") -> None:
    """`what`: images that are told apart by it have no layer in common."""
    store.mkdir(exist_ok=True)
    shutil.chown(store, user)
    with _podman(store, user) as podman, tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        tar = Path(folder, "root.tar")
        tar.write_bytes(_root(what))
        podman("import", "--quiet", str(tar), image)


@contextlib.contextmanager
def _podman(store: Path, user: str) -> Iterator[Callable[..., None]]:
    """podman as that user, on that store. What it knows of earlier runs elsewhere is forgotten first."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        (run := Path(folder, "run")).mkdir()
        shutil.chown(run, user)
        shutil.rmtree(store / "libpod", ignore_errors=True)
        words = [
            "podman",
            f"--root={store}",
            f"--runroot={run}/c",
            f"--tmpdir={run}/t",
            "--storage-driver=overlay",
        ]
        as_user = [] if user == "root" else ["/usr/sbin/runuser", "-u", user, "--"]
        home = os.path.expanduser(f"~{user}")
        environment = {"PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(run), "HOME": home}

        def podman(*more: str) -> None:
            done = subprocess.run(
                [*as_user, *words, *more], env=environment, cwd="/", capture_output=True, check=False
            )
            assert done.returncode == 0, done.stderr.decode()

        yield podman
        if (pause := run / "t" / "pause.pid").exists():
            os.kill(int(pause.read_text()), 9)


def _root(what: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name in ("bin", "etc", "tmp", "home", "root"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        tar.add(shutil.which("busybox") or "", "bin/busybox")
        for word in _WORDS:
            entry = tarfile.TarInfo(f"bin/{word}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
        entry = tarfile.TarInfo(f"etc/this-is-{what}")
        tar.addfile(entry)
    return made.getvalue()


@contextlib.contextmanager
def running_registry(folder: Path, *, with_login: bool = False) -> Iterator[str]:
    """A registry on this machine, as `127.0.0.1:PORT`; empty. `with_login`: only ann may use it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{found.getsockname()[1]}"
    settings = folder / "registry.yml"
    settings.write_text(
        "version: 0.1\nlog: {level: error}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder}/registry}}}}\nhttp: {{addr: '{address}'}}\n"
        + (f"auth: {{htpasswd: {{realm: lab, path: {folder}/people}}}}\n" if with_login else "")
    )
    (folder / "people").write_text(f"ann:{_HASHED}\n")
    process = subprocess.Popen(
        ["docker-registry", "serve", settings], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    config = Path("/etc/containers/registries.conf.d") / f"heliostat-test-{os.getpid()}.conf"
    config.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
    try:
        wait_until(lambda: _answers(address), "the registry to answer")
        yield address
    finally:
        config.unlink()
        process.kill()
        process.wait()


def push_image(home: Path, user: str, image: str) -> None:
    """From the images of that user to a registry."""
    with _podman(home / "images" / user, user) as podman:
        podman("push", "--quiet", "--tls-verify=false", TEST_IMAGE, f"docker://{image}")


def _answers(address: str) -> bool:
    host, _, port = address.partition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
        return True
    return False
