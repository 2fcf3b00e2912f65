"""Tasks of Apache Airflow as jobs of Heliostat."""

from importlib import import_module
from typing import Any

__all__ = ["HeliostatHook", "HeliostatOperator", "HeliostatTrigger"]
__version__ = "0.1.0"
_PLACES = {"HeliostatHook": "hook", "HeliostatOperator": "operator", "HeliostatTrigger": "trigger"}


def __getattr__(name: str) -> Any:
    """On demand: Airflow reads `provider_info` while it is itself only half loaded."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)


def provider_info() -> dict[str, Any]:
    """What Airflow lists, and asks for in the form of a connection."""
    return {
        "package-name": "heliostat-airflow",
        "name": "Heliostat",
        "description": "Runs tasks as jobs of Heliostat.",
        "versions": [__version__],
        "connection-types": [
            {"connection-type": "heliostat", "hook-class-name": "heliostat_airflow.hook.HeliostatHook"}
        ],
    }
