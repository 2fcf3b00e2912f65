"""Apache Airflow provider: runs tasks as Heliostat jobs."""

from importlib import import_module
from typing import Any

__all__ = ["HeliostatHook", "HeliostatOperator", "HeliostatTrigger"]
__version__ = "0.1.0"
_MODULES = {"HeliostatHook": "hook", "HeliostatOperator": "operator", "HeliostatTrigger": "trigger"}


def __getattr__(name: str) -> Any:
    """Imports on demand: Airflow calls `provider_info` while it is itself only partly loaded."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def provider_info() -> dict[str, Any]:
    """Metadata for Airflow's list of providers and its connection form."""
    return {
        "package-name": "heliostat-airflow",
        "name": "Heliostat",
        "description": "Runs tasks as Heliostat jobs.",
        "versions": [__version__],
        "connection-types": [
            {"connection-type": "heliostat", "hook-class-name": "heliostat_airflow.hook.HeliostatHook"}
        ],
    }
