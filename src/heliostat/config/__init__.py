"""Where an installation lives and how it is set: one Settings object of one record per section of `cluster.toml`,
built once. Each part is handed its own section."""

from heliostat.config.home import Home, find_home
from heliostat.config.load import load_settings
from heliostat.config.sections import (
    DEFAULT_PORT,
    AuthSettings,
    ContainerSettings,
    EnvironmentSettings,
    MonitoringSettings,
    NotificationSettings,
    QueueSettings,
    ServerSettings,
    SessionSettings,
    SlurmSettings,
    StorageSettings,
)
from heliostat.config.settings import Settings

__all__ = [
    "DEFAULT_PORT",
    "AuthSettings",
    "ContainerSettings",
    "EnvironmentSettings",
    "Home",
    "MonitoringSettings",
    "NotificationSettings",
    "QueueSettings",
    "ServerSettings",
    "SessionSettings",
    "Settings",
    "SlurmSettings",
    "StorageSettings",
    "find_home",
    "load_settings",
]
