"""Paths of the files of Slurm, munge and MariaDB: Debian's, or all below one folder."""

import re
from dataclasses import dataclass

from heliostat.errors import Invalid

_PREFIX = re.compile(r"/[A-Za-z0-9_./-]*[A-Za-z0-9_-]")
MAX_PREFIX_LENGTH = 70  # a Unix socket's address holds 108 bytes


@dataclass(frozen=True)
class SlurmPaths:
    prefix: str = ""  # empty: Debian's paths

    def __post_init__(self) -> None:
        if not self.prefix:
            return
        if not _PREFIX.fullmatch(self.prefix) or ".." in self.prefix or len(self.prefix) > MAX_PREFIX_LENGTH:
            hint = f"Use an absolute path of letters, digits, _ . and -, at most {MAX_PREFIX_LENGTH} characters."
            raise Invalid(f"{self.prefix!r} is not a valid folder for a Slurm setup.", hint)

    @property
    def config_folder(self) -> str:
        return f"{self.prefix}/etc/slurm"

    @property
    def unit_folder(self) -> str:
        """Folder of systemd drop-ins for slurmd. Not used with a prefix."""
        return f"{self.prefix}/etc/systemd/system/slurmd.service.d"

    @property
    def slurm_conf(self) -> str:
        return f"{self.config_folder}/slurm.conf"

    @property
    def munge_key(self) -> str:
        return f"{self.prefix}/etc/munge/munge.key"

    @property
    def munge_socket(self) -> str:
        return f"{self.prefix}/run/munge/munge.socket.2"

    @property
    def controller_state_folder(self) -> str:
        return f"{self.prefix}/var/lib/slurm/slurmctld"

    @property
    def slurmd_spool_folder(self) -> str:
        return f"{self.prefix}/var/lib/slurm/slurmd"

    @property
    def log_folder(self) -> str:
        return f"{self.prefix}/var/log/slurm"

    @property
    def run_folder(self) -> str:
        return f"{self.prefix}/run"

    @property
    def database_folder(self) -> str:
        return f"{self.prefix}/var/lib/mysql"

    @property
    def database_socket(self) -> str:
        return f"{self.prefix}/run/mysqld/mysqld.sock"
