"""The client of a command."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heliostat.client import Client


def connect() -> "Client":
    """Imported here so that help and mistakes in the command line cost nothing."""
    from heliostat.client import Client

    return Client()
