"""Data directory and settings of an installation: one Settings object with one record per section of
`cluster.toml`, built once. Each component gets its own section."""

from typing import TYPE_CHECKING, Any

from heliostat.config.home import DEFAULT_PORT, Home, find_home

if TYPE_CHECKING:
    from heliostat.config.load import load_settings
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
    from heliostat.config.settings import Settings

__all__ = [
    "DEFAULT_PORT",
    "AuthSettings",
    "BackupSettings",
    "ContainerSettings",
    "EnvironmentSettings",
    "FairUseSettings",
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


def __getattr__(name: str) -> Any:
    """Import the settings at first use: most commands need only the home and start faster without them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from heliostat.config import load, sections

    return getattr(load if hasattr(load, name) else sections, name)
