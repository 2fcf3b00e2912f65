"""`helio share`: fair shares and recent usage."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from heliostat.cli.connection import connect
from heliostat.cli.output import (
    Column,
    JsonFlag,
    print_json,
    print_message,
    print_table,
)

if TYPE_CHECKING:
    from heliostat.client.queue import ShareEntry

_SHARE_COLUMNS = (
    Column("DEPARTMENT > PROJECT > USER", shrinkable=True),
    Column("SHARE", right_aligned=True),
    Column("ENTITLED", right_aligned=True),
    Column("USED", right_aligned=True),
    Column("RESERVED", right_aligned=True),
    Column("OF SHARE", right_aligned=True),
)
_TIMES = "\N{MULTIPLICATION SIGN}"


def share(as_json: JsonFlag = False) -> None:
    """Show fair shares and recent usage.

    ENTITLED: part of the cluster that the account gets while all others use theirs. USED: recent GPU-hours.
    RESERVED: GPU-hours charged in advance for its running jobs. OF SHARE: both as a multiple of what it is
    entitled to; the department, and in it the project, with the lowest number has the next turn.
    """
    response = connect().queue.share()
    tree = response["items"]
    if as_json:
        print_json(tree)
        return
    print_table(_SHARE_COLUMNS, (_share_row(account, depth) for account, depth in _walk(tree)))
    if (source := response.get("usage_source", "heliostat")) != "heliostat":
        print_message(f"Usage as counted by {source.capitalize()}, including jobs submitted to it directly.")


def _walk(tree: "list[ShareEntry]", depth: int = 0) -> "Iterator[tuple[ShareEntry, int]]":
    for account in tree:
        yield account, depth
        yield from _walk(account["children"], depth + 1)


def _share_row(account: "ShareEntry", depth: int) -> list[str]:
    entitled = account["entitled"]
    name = "  " * depth + account["name"]
    if entitled is None:
        return [name, str(account["share"]), "-", "-", "-", "-"]
    return [
        name,
        str(account["share"]),
        f"{entitled:.1%}",
        f"{account['usage_gpu_hours'] - account['reserved_gpu_hours']:.1f}",
        f"{account['reserved_gpu_hours']:.1f}",
        f"{account['usage_ratio']:.2f}{_TIMES}",
    ]
