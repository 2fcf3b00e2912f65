"""An image without a registry: a busybox, put straight into the store of a user."""

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

IMAGE = "localhost/busybox:latest"
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


def why_no_podman() -> str | None:
    missing = [name for name in ("podman", "runc", "newuidmap", "busybox") if shutil.which(name) is None]
    return f"needs {', '.join(missing)}: scripts/install-test-parts" if missing else None


def put_image(home: Path, user: str, image: str = IMAGE) -> None:
    """Into the images of that Unix user, as a download would have."""
    store = home / "images" / user
    store.parent.mkdir(exist_ok=True)
    store.parent.chmod(0o711)
    store.mkdir(exist_ok=True)
    shutil.chown(store, user)
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        (run := Path(folder, "run")).mkdir()
        shutil.chown(run, user)
        tar = Path(folder, "root.tar")
        tar.write_bytes(_root())
        words = [
            "podman",
            f"--root={store}",
            f"--runroot={run}/c",
            f"--tmpdir={run}/t",
            "--storage-driver=overlay",
        ]
        as_user = [] if user == "root" else ["/usr/sbin/runuser", "-u", user, "--"]
        environment = {
            "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": str(run),
            "HOME": os.path.expanduser(f"~{user}"),
        }
        done = subprocess.run(
            [*as_user, *words, "import", "--quiet", str(tar), image],
            env=environment,
            cwd="/",
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        if (pause := run / "t" / "pause.pid").exists():
            os.kill(int(pause.read_text()), 9)


def _root() -> bytes:
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
        entry = tarfile.TarInfo("etc/this-is-the-image")
        tar.addfile(entry)
    return made.getvalue()
