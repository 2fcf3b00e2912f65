"""A package index on this machine, with tiny packages made on the spot: tests need no internet.

with package_index(folder) as index:
    index.add_wheel("tiny", "1.0")
    index.url  # for UV_DEFAULT_INDEX
"""

import contextlib
import http.server
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_BACKEND = """
import os, sys, zipfile
NAME, VERSION = "{name}", "{version}"
def _wheel(folder):
    file = f"{{NAME}}-{{VERSION}}-py3-none-any.whl"
    info = f"{{NAME}}-{{VERSION}}.dist-info"
    with zipfile.ZipFile(os.path.join(folder, file), "w") as archive:
        archive.writestr(f"{{NAME}}.py", "VALUE = 'from source'\\n")
        archive.writestr(f"{{info}}/METADATA", f"Metadata-Version: 2.1\\nName: {{NAME}}\\nVersion: {{VERSION}}\\n")
        archive.writestr(f"{{info}}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(f"{{info}}/RECORD", "")
    return file
def build_wheel(folder, config_settings=None, metadata_directory=None):
{mischief}
    return _wheel(folder)
"""


@dataclass
class PackageIndex:
    """What is in it, and what was asked of it."""

    folder: Path
    url: str = ""
    requested_paths: list[str] = field(default_factory=list)
    hold_files: threading.Event = field(default_factory=threading.Event)  # while set, files are not handed out
    file_is_waited_for: threading.Event = field(default_factory=threading.Event)  # somebody waits for a file

    def add_wheel(self, name: str, version: str, needs: Sequence[str] = (), **more: str) -> None:
        """`more` are texts of further files in it, by the end of their name: `pth="import os"`."""
        info = f"{name}-{version}.dist-info"
        required = "".join(f"Requires-Dist: {one}\n" for one in needs)
        code = f"VALUE = {version!r}\ndef main():\n    print('{name} {version}')\n"
        files = {
            f"{name}.py": code,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
            f"{info}/RECORD": "",
            **{f"{name}.{end}": text for end, text in more.items()},
        }
        with zipfile.ZipFile(self._place(name) / f"{name}-{version}-py3-none-any.whl", "w") as archive:
            for path, content in files.items():
                archive.writestr(path, content)

    def add_source_distribution(self, name: str, version: str, mischief: str = "    pass") -> None:
        """A source distribution whose build runs `mischief`: lines of Python, indented by four."""
        project = (
            f'[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
            f'[project]\nname = "{name}"\nversion = "{version}"\n'
        )
        root = f"{name}-{version}"
        files = {
            f"{root}/pyproject.toml": project,
            f"{root}/backend.py": _BACKEND.format(name=name, version=version, mischief=mischief),
            f"{root}/PKG-INFO": f"Metadata-Version: 2.2\nName: {name}\nVersion: {version}\n",
        }
        with tarfile.open(self._place(name) / f"{root}.tar.gz", "w:gz") as archive:
            for path, content in files.items():
                entry = tarfile.TarInfo(path)
                entry.size = len(content.encode())
                archive.addfile(entry, io.BytesIO(content.encode()))

    def _place(self, name: str) -> Path:
        place = self.folder / "simple" / name
        place.mkdir(parents=True, exist_ok=True)
        return place


@contextlib.contextmanager
def running_package_index(folder: Path) -> Iterator[PackageIndex]:
    """Served on loopback until the end."""
    index = PackageIndex(folder)
    (folder / "simple").mkdir(parents=True, exist_ok=True)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]

        def do_GET(self) -> None:
            index.requested_paths.append(self.path)
            if index.hold_files.is_set() and not self.path.endswith("/"):
                index.file_is_waited_for.set()
                while index.hold_files.is_set():
                    threading.Event().wait(0.05)
            with contextlib.suppress(OSError):  # who asked may be gone
                super().do_GET()

        def log_message(self, *_: object) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass  # a build that was killed has left in the middle

    server = Server(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_port}/simple"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        index.hold_files.clear()
        server.shutdown()
        server.server_close()
        thread.join()
