"""Creates the API client for a command."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heliostat.client import Client


def connect() -> "Client":
    """Imports the client only now, so that --help and usage errors are fast."""
    from heliostat.client import Client

    return Client()
