"""The data directory of an installation."""

import os
from dataclasses import dataclass
from pathlib import Path

SYSTEM_HOME = Path("/var/lib/heliostat")
DEFAULT_PORT = 8470


@dataclass(frozen=True, slots=True)
class Home:
    """The data directory: everything of one installation lives under it."""

    path: Path

    @property
    def database(self) -> Path:
        return self.path / "heliostat.db"

    @property
    def socket(self) -> Path:
        return self.path / "heliostat.sock"

    @property
    def jobs(self) -> Path:
        """Logs, scripts and private folders of jobs; each belongs to its user."""
        return self.path / "jobs"

    @property
    def workflows(self) -> Path:
        """What jobs of workflows hand on as files: a folder for each job, which belongs to its user."""
        return self.path / "workflows"

    @property
    def images(self) -> Path:
        """What containers are made of; a folder for each Unix user."""
        return self.path / "images"

    @property
    def registry_logins(self) -> Path:
        """For registries, each for one push and readable by whom it is for alone."""
        return self.path / "logins"

    @property
    def uploads(self) -> Path:
        """Code that people have sent for their jobs; a folder for each person, only the server reads it."""
        return self.path / "uploads"

    @property
    def environments(self) -> Path:
        """Software that was built for jobs, and what it is built with."""
        return self.path / "environments"

    @property
    def attempts(self) -> Path:
        """What the wrappers of attempts leave on disk; only the server reads it."""
        return self.path / "attempts"

    @property
    def samples(self) -> Path:
        """What jobs and nodes used over time: large, and not precious."""
        return self.path / "samples.db"

    @property
    def server_log(self) -> Path:
        return self.path / "server.log"

    @property
    def lock_file(self) -> Path:
        return self.path / "server.lock"

    @property
    def status_file(self) -> Path:
        """Process id and address of the running server."""
        return self.path / "server.json"

    @property
    def history_key(self) -> Path:
        """What makes the pseudonyms of exports; only the server reads it."""
        return self.path / "history.key"

    @property
    def notification_key(self) -> Path:
        """What the secrets that sign notifications are made from; only the server reads it."""
        return self.path / "notification.key"

    def rename_old_files(self) -> None:
        """Give files of an earlier version their present names."""
        old = self.path / "notice.key"
        if old.exists() and not self.notification_key.exists():
            old.rename(self.notification_key)

    @property
    def session_key(self) -> Path:
        """From which the secrets of some sessions follow; only the server reads it."""
        return self.path / "session.key"

    @property
    def config_file(self) -> Path:
        return self.path / "cluster.toml"


def find_home(environ: "os._Environ[str] | dict[str, str]" = os.environ) -> Home:
    """HELIOSTAT_HOME; else the machine's installation when there is one; else the user's own."""
    if chosen := environ.get("HELIOSTAT_HOME"):
        return Home(Path(chosen).expanduser().absolute())
    if os.geteuid() == 0 or (SYSTEM_HOME / "heliostat.sock").exists():
        return Home(SYSTEM_HOME)
    data = environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Home(Path(data).expanduser().absolute() / "heliostat")
