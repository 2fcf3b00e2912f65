"""Heliostat turns a research group's GPU servers into one shared deep-learning cluster."""

from typing import TYPE_CHECKING, Any

from heliostat.version import __version__

if TYPE_CHECKING:
    from heliostat.client import Client, JobHandle, Workflow
    from heliostat.errors import HeliostatError

__all__ = ["Client", "HeliostatError", "JobHandle", "Workflow", "__version__"]


def __getattr__(name: str) -> Any:
    """Imports on first use, so that the command line starts fast."""
    if name in {"Client", "JobHandle", "Workflow"}:
        from heliostat import client

        return getattr(client, name)
    if name == "HeliostatError":
        from heliostat import errors

        return errors.HeliostatError
    raise AttributeError(name)
