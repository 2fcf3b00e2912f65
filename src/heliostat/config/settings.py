"""All settings of an installation, section by section."""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from heliostat.config.home import Home
from heliostat.config.sections import (
    AuthSettings,
    BackupSettings,
    ContainerSettings,
    EnvironmentSettings,
    FairUseSettings,
    MonitoringSettings,
    NotificationSettings,
    QueueSettings,
    ServerSettings,
    SessionSettings,
    SlurmSettings,
    StorageSettings,
)

COMMAND_LINE_SOURCE = "command line"


@dataclass(frozen=True, slots=True)
class Settings:
    """All of `cluster.toml`, with its defaults."""

    home: Home
    server: ServerSettings = field(default_factory=ServerSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    containers: ContainerSettings = field(default_factory=ContainerSettings)
    environments: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    sessions: SessionSettings = field(default_factory=SessionSettings)
    notifications: NotificationSettings = field(default_factory=NotificationSettings)
    auth: AuthSettings = field(default_factory=AuthSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    backup: BackupSettings = field(default_factory=BackupSettings)
    monitoring: MonitoringSettings = field(default_factory=MonitoringSettings)
    fair_use: FairUseSettings = field(default_factory=FairUseSettings)
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)  # origin of values, by "server.port"

    @property
    def command_line_options(self) -> dict[str, dict[str, Any]]:
        """Values from the command line, by section."""
        chosen = [key.split(".") for key, source in self.sources.items() if source == COMMAND_LINE_SOURCE]
        return {
            section: {
                name: getattr(getattr(self, section), name)
                for its_section, name in chosen
                if its_section == section
            }
            for section in dict.fromkeys(section for section, _ in chosen)
        }


SECTIONS: dict[str, Any] = {
    section_field.name: section_field.type
    for section_field in fields(Settings)
    if section_field.name not in ("home", "sources")
}
"""The class of each section, by name."""


def section_fields(section: str) -> "dict[str, Field[Any]]":
    return {section_field.name: section_field for section_field in fields(SECTIONS[section])}
