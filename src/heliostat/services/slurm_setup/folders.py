"""The folders of a Slurm that we set up, and whose they are."""

import os
import pwd
from pathlib import Path

from heliostat.engines.slurm.setup.layout import Layout


def make_folders(layout: Layout) -> None:
    """Those that are there keep what is in them. On the machine itself the packages have made the rest."""
    more = _of_others(layout) if layout.prefix else ((layout.unit_folder, "root", 0o755),)
    for path, owner, mode in (*_of_slurm(layout), *more):
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        who = pwd.getpwnam(owner)
        os.chown(folder, who.pw_uid, who.pw_gid)
        folder.chmod(mode)


def _of_slurm(layout: Layout) -> tuple[tuple[str, str, int], ...]:
    return (
        (layout.conf_folder, "root", 0o755),
        (str(Path(layout.key).parent), "munge", 0o700),
        (layout.state, "slurm", 0o700),
        (layout.spool, "root", 0o755),
        (layout.logs, "slurm", 0o755),
    )


def _of_others(layout: Layout) -> tuple[tuple[str, str, int], ...]:
    return (
        (str(Path(layout.munge_socket).parent), "munge", 0o755),
        (f"{layout.prefix}/var/log/munge", "munge", 0o700),
        (f"{layout.prefix}/var/lib/munge", "munge", 0o711),
        (str(Path(layout.database_socket).parent), "mysql", 0o755),
    )
