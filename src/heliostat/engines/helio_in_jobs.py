"""What every job finds without an installation: the program `helio`, and the Python client."""

import io
import os
import sys
import zipfile
from pathlib import Path

import heliostat
from heliostat.config import Home
from heliostat.engines.job_variables import programs_folder
from heliostat.payloads.archive import JOB_COMMANDS, pack_program
from heliostat.server_log import get_logger

log = get_logger()
_PACKAGE = Path(heliostat.__file__).resolve().parent
_CLIENT_PARTS = ("__init__.py", "version.py", "errors.py", "client", "config", "models")
_CLIENT_LOADER = '''"""An installed Heliostat, if there is one later on the path; else the client of the server."""

import os as _os
import sys as _sys
import zipimport as _zipimport

_here = _os.path.realpath(_os.path.dirname(__file__))
_archive = _os.path.join(_os.path.dirname(_os.path.dirname(_here)), "client.zip")
_folders = [_os.path.join(_folder, "heliostat") for _folder in _sys.path]
_installed = [_folder for _folder in _folders if _os.path.isfile(_os.path.join(_folder, "__init__.py"))]
_installed = [_folder for _folder in _installed if _os.path.realpath(_folder) != _here]
if _installed:
    with open(_os.path.join(_installed[0], "__init__.py"), encoding="utf-8") as _file:
        _source = _file.read()
else:
    _source = _zipimport.zipimporter(_archive).get_source("heliostat")
__path__ = _installed[:1] or [_os.path.join(_archive, "heliostat")]
__file__ = _os.path.join(__path__[0], "__init__.py")
exec(compile(_source, __file__, "exec"))
'''


def install_job_programs(home: Home) -> None:
    """Writes those of this version; running programs keep theirs open. Jobs run without them, too."""
    folder = Path(programs_folder(str(home.path)))
    try:
        for path in (folder, folder / "python", folder / "python/heliostat"):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
        package = os.fspath(_PACKAGE / "__init__.py")
        _write(folder / "helio", pack_program(JOB_COMMANDS, sys.executable, package), 0o755)
        _write(folder / "client.zip", _pack_client(), 0o644)
        _write(folder / "python/heliostat/__init__.py", _CLIENT_LOADER.encode(), 0o644)
    except OSError as error:
        log.warning("job_programs_not_written", folder=str(folder), error=error.strerror)


def _write(path: Path, content: bytes, mode: int) -> None:
    draft = path.with_name(f".{path.name}")
    draft.unlink(missing_ok=True)
    draft.write_bytes(content)
    draft.chmod(mode)
    draft.replace(path)


def _pack_client() -> bytes:
    """The client and what it imports: all of it needs only the standard library."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for part in _CLIENT_PARTS:
            path = _PACKAGE / part
            for source in sorted(path.glob("*.py")) if path.is_dir() else (path,):
                archive.writestr(f"heliostat/{source.relative_to(_PACKAGE)}", source.read_bytes())
    return file.getvalue()
