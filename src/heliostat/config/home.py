"""The data directory of an installation."""

import os
from dataclasses import dataclass
from pathlib import Path

SYSTEM_HOME = Path("/var/lib/heliostat")
DEFAULT_PORT = 8470


@dataclass(frozen=True, slots=True)
class Home:
    """The data directory: it contains all files of one installation. Its databases may have another folder."""

    path: Path
    database_folder: Path | None = None  # None: the data directory

    @property
    def database(self) -> Path:
        return (self.database_folder or self.path) / "heliostat.db"

    @property
    def socket(self) -> Path:
        return self.path / "heliostat.sock"

    @property
    def jobs(self) -> Path:
        """Logs, scripts and private folders of jobs; each belongs to its user."""
        return self.path / "jobs"

    @property
    def workflows(self) -> Path:
        """Files that jobs of workflows pass on: a folder for each job, owned by its user."""
        return self.path / "workflows"

    @property
    def images(self) -> Path:
        """Container images; a folder for each Unix user."""
        return self.path / "images"

    @property
    def registry_logins(self) -> Path:
        """Registry logins, each for one push and readable only by its user."""
        return self.path / "logins"

    @property
    def uploads(self) -> Path:
        """Uploaded code; a folder for each user, readable only by the server."""
        return self.path / "uploads"

    @property
    def environments(self) -> Path:
        """Software environments built for jobs, and the build tools."""
        return self.path / "environments"

    @property
    def attempts(self) -> Path:
        """Files of the wrapper processes of attempts; readable only by the server."""
        return self.path / "attempts"

    @property
    def samples(self) -> Path:
        """Usage samples of jobs and nodes: large, and not needed in a backup."""
        return self.database.with_name("samples.db")

    @property
    def backups(self) -> Path:
        """Backups, unless a setting names another folder; readable only by the server."""
        return self.path / "backups"

    @property
    def server_log(self) -> Path:
        return self.path / "server.log"

    @property
    def lock_file(self) -> Path:
        return self.path / "server.lock"

    @property
    def database_lock_file(self) -> Path:
        """Against a second home with the same database."""
        return self.database.with_name(self.lock_file.name)

    @property
    def status_file(self) -> Path:
        """Process id and address of the running server."""
        return self.path / "server.json"

    @property
    def pause_file(self) -> Path:
        """Exists while Heliostat is paused; says since when and why."""
        return self.path / "paused.json"

    @property
    def left_attempts_file(self) -> Path:
        """Attempts that are not in the database and continue, because an admin decided so."""
        return self.path / "left_attempts.json"

    @property
    def history_key(self) -> Path:
        """Key for the pseudonyms in exports; readable only by the server."""
        return self.path / "history.key"

    @property
    def notification_key(self) -> Path:
        """Key for the signing secrets of notifications; readable only by the server."""
        return self.path / "notification.key"

    def rename_old_files(self) -> None:
        """Rename files of an earlier version."""
        old = self.path / "notice.key"
        if old.exists() and not self.notification_key.exists():
            old.rename(self.notification_key)

    @property
    def session_key(self) -> Path:
        """Key for the secrets of some sessions; readable only by the server."""
        return self.path / "session.key"

    @property
    def config_file(self) -> Path:
        return self.path / "cluster.toml"


def find_home(environ: "os._Environ[str] | dict[str, str]" = os.environ) -> Home:
    """HELIOSTAT_HOME; otherwise the installation of this machine, if it exists; otherwise that of the user."""
    if chosen := environ.get("HELIOSTAT_HOME"):
        return Home(Path(chosen).expanduser().absolute())
    if os.geteuid() == 0 or (SYSTEM_HOME / "heliostat.sock").exists():
        return Home(SYSTEM_HOME)
    data = environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Home(Path(data).expanduser().absolute() / "heliostat")
