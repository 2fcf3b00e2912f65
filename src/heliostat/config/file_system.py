"""The file system of a folder: SQLite needs one of this machine.

Its locks, and the memory that processes share through its files, are not reliable where several machines have the
same files: the database can be damaged.
"""

from pathlib import Path

from heliostat.config.home import Home
from heliostat.errors import HeliostatError

SHARED_FILE_SYSTEMS = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs"),
        *("pvfs2", "orangefs", "panfs", "wekafs", "vastnfs", "gfs2", "ocfs2", "9p", "ncpfs", "coda"),
        *(
            "fuse.sshfs",
            "fuse.ceph",
            "fuse.ceph-fuse",
            "fuse.glusterfs",
            "fuse.juicefs",
            "fuse.s3fs",
            "fuse.rclone",
        ),
        *("fuse.mfs", "fuse.moosefs", "fuse.lizardfs", "fuse.davfs", "davfs", "fuse.smbnetfs", "fuse.curlftpfs"),
    )
)
_MOUNTS = Path("/proc/self/mountinfo")
SHARED_DATABASE_HINT = (
    "Set database_folder in [storage] to a folder on a disk of this machine; HELIOSTAT_HOME can stay shared."
    " An existing database: helio down, move heliostat.db* and samples.db* there, helio up."
)


def find_shared_file_system(folder: Path, mounts: Path = _MOUNTS) -> str | None:
    """Its type, if several machines share the file system of the folder; None: it is one of this machine."""
    kind = find_file_system(folder, mounts)
    return kind if kind in SHARED_FILE_SYSTEMS else None


def check_database_folder(home: Home, mounts: Path = _MOUNTS) -> str | None:
    """Why the folder is not safe; None: it is. Raises HeliostatError if there is no database in it yet."""
    folder = home.database.parent
    kind = find_shared_file_system(folder, mounts)
    if kind is None:
        return None
    cause = f"{folder} is on a file system that several machines share ({kind}): the database can be damaged."
    if not home.database.exists():
        raise HeliostatError(f"No database is created: {cause}", SHARED_DATABASE_HINT, code="shared_file_system")
    return cause


def find_file_system(path: Path, mounts: Path = _MOUNTS) -> str:
    """The type of the file system that has the path, or will have it; empty: unknown."""
    found, kind = Path(), ""
    real = path.resolve()
    for line in mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        mount, _, rest = line.partition(" - ")
        point = Path(_unescape(mount.split(" ")[4]))
        if real.is_relative_to(point) and len(point.parts) >= len(
            found.parts
        ):  # a later mount hides an earlier one
            found, kind = point, rest.split(" ")[0]
    return kind


def _unescape(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
