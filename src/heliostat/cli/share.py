"""`helio share`: fair shares and recent usage, or what was delivered of the shares since a day."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import (
    Column,
    JsonFlag,
    print_json,
    print_message,
    print_table,
)
from heliostat.cli.stats import sparkline

if TYPE_CHECKING:
    from heliostat.client.queue import AccountDelivery, ShareDelivery, ShareEntry

Account = TypeVar("Account", "ShareEntry", "AccountDelivery")

_SHARE_COLUMNS = (
    Column("DEPARTMENT > PROJECT > USER", shrinkable=True),
    Column("SHARE", right_aligned=True),
    Column("ENTITLED", right_aligned=True),
    Column("USED", right_aligned=True),
    Column("RESERVED", right_aligned=True),
    Column("OF SHARE", right_aligned=True),
    Column("CREDIT", right_aligned=True),
)
_TIMES = "\N{MULTIPLICATION SIGN}"


_DELIVERY_COLUMNS = (
    Column("DEPARTMENT > PROJECT > USER", shrinkable=True),
    Column("SHARE", right_aligned=True),
    Column("ENTITLED", right_aligned=True),
    Column("DELIVERED", right_aligned=True),
    Column("OF ENTITLED", right_aligned=True),
)
_SPARKLINE_TOP = 1.75  # so that 1 is drawn as the fifth of the eight blocks, and also what is within 12% of it


def share(
    since: Annotated[
        str | None,
        typer.Option(
            metavar="DAY",
            help="Compare GPU-hours delivered since DAY with those entitled to: 14d, or 2026-11-01 (UTC).",
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show fair shares and recent usage, or what was delivered since a day.

    ENTITLED: part of the cluster that the account gets while all others use theirs. USED: recent GPU-hours.
    RESERVED: GPU-hours charged in advance for its running jobs. OF SHARE: both as a multiple of what it is
    entitled to; the department, and in it the project, with the lowest number has the next turn. CREDIT: GPU-hours
    of the last week that are not charged, because idle GPUs were given back early.
    """
    if since is not None:
        _print_delivery(connect().queue.share_delivery(_day(since)), as_json)
        return
    response = connect().queue.share()
    tree = response["items"]
    if as_json:
        print_json(tree)
        return
    print_table(_SHARE_COLUMNS, (_share_row(account, depth) for account, depth in _walk(tree)))
    if (source := response.get("usage_source", "heliostat")) != "heliostat":
        print_message(f"Usage as counted by {source.capitalize()}, including jobs submitted to it directly.")


def _day(text: str) -> str:
    """The day of `2026-11-01`, or of 14 days ago."""
    from datetime import UTC, date, datetime, timedelta

    from heliostat.models.quantities import parse_duration

    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    try:
        return (datetime.now(UTC) - timedelta(seconds=parse_duration(text))).date().isoformat()
    except ValueError:
        raise typer.BadParameter(f"{text!a} is not a day; write 14d or 2026-11-01", param_hint="--since") from None
    except OverflowError:
        raise typer.BadParameter(f"{text!a} is too long ago.", param_hint="--since") from None


def _print_delivery(delivery: "ShareDelivery", as_json: bool) -> None:
    if as_json:
        print_json(delivery)
        return
    step = "DAY" if delivery["step_days"] == 1 else "WEEK"
    columns = (*_DELIVERY_COLUMNS, Column(f"PER {step}", optional=True))
    print_table(columns, (_delivery_row(account, depth) for account, depth in _walk(delivery["items"])))
    print_message(
        f"GPU-hours since {delivery['start_at'][:10]}. PER {step}: delivered of entitled; "
        f"{sparkline([1.0], 1, _SPARKLINE_TOP)} is all, and a blank means that it was entitled to nothing."
    )


def _walk(tree: "list[Account]", depth: int = 0) -> "Iterator[tuple[Account, int]]":
    for account in tree:
        yield account, depth
        yield from _walk(account["children"], depth + 1)


def _share_row(account: "ShareEntry", depth: int) -> list[str]:
    entitled = account["entitled"]
    name = "  " * depth + account["name"]
    if entitled is None:
        return [name, str(account["share"]), "-", "-", "-", "-", _credit(account)]
    return [
        name,
        str(account["share"]),
        f"{entitled:.1%}",
        f"{account['usage_gpu_hours'] - account['reserved_gpu_hours']:.1f}",
        f"{account['reserved_gpu_hours']:.1f}",
        f"{account['usage_ratio']:.2f}{_TIMES}",
        _credit(account),
    ]


def _credit(account: "ShareEntry") -> str:
    hours = account.get("credit_gpu_hours", 0.0)
    return f"{hours:.1f}" if hours else ""


def _delivery_row(account: "AccountDelivery", depth: int) -> list[str]:
    name, fraction, ratio = "  " * depth + account["name"], account["share_fraction"], account["delivered_ratio"]
    if fraction is None:
        return [name, "-", "-", "-", "-", ""]
    steps = zip(account["entitled_by_step"], account["delivered_by_step"], strict=True)
    ratios = [delivered / entitled if entitled else None for entitled, delivered in steps]
    return [
        name,
        f"{fraction:.1%}",
        f"{account['entitled_gpu_hours']:,.1f}",
        f"{account['delivered_gpu_hours']:,.1f}",
        "-" if ratio is None else f"{ratio:.0%}",
        sparkline(ratios, len(ratios), _SPARKLINE_TOP),
    ]
