"""Creates the API client for a command."""

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heliostat.client import Client


def connect() -> "Client":
    """Imports the client only now, so that --help and usage errors are fast."""
    from heliostat.client import Client

    return Client(on_notice=_print_once)


@cache
def _print_once(notice: str) -> None:
    print(f"note: {notice}", file=sys.stderr)
