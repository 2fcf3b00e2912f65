"""The program `helio` that is on the PATH of every job."""

import os
import sys
from pathlib import Path

import heliostat
from heliostat.config import Home
from heliostat.engines.job_variables import programs_folder
from heliostat.payloads.archive import JOB_COMMANDS, pack_program
from heliostat.server_log import get_logger

log = get_logger()


def install_job_programs(home: Home) -> None:
    """Writes the program of this version; running programs keep theirs open. Jobs run without it, too."""
    folder = Path(programs_folder(str(home.path)))
    try:
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
        draft = folder / ".helio"
        draft.unlink(missing_ok=True)
        draft.write_bytes(pack_program(JOB_COMMANDS, sys.executable, os.path.abspath(heliostat.__file__)))
        draft.chmod(0o755)
        draft.replace(folder / "helio")
    except OSError as error:
        log.warning("job_programs_not_written", folder=str(folder), error=error.strerror)
