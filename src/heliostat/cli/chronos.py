"""Jobs of Chronos in a file: each becomes a schedule, or takes the place of the one of its name."""

from typing import TYPE_CHECKING, Any

import typer

from heliostat.cli.output import print_json
from heliostat.cli.units import clock
from heliostat.models.schedules import is_chronos

if TYPE_CHECKING:
    from heliostat.client import Client


def put_chronos(client: "Client", file: str, documents: list[dict[str, Any]], as_json: bool) -> None:
    """Parents before their children, whatever their order in the file."""
    if not all(is_chronos(one) for one in documents):
        raise typer.BadParameter(f"{file}: jobs of Chronos and others cannot be in one file.", param_hint="FILE")
    made = [client.schedules.put_chronos(one) for one in _in_order(documents)]
    if as_json:
        print_json(made[0] if len(made) == 1 else made)
        return
    for one in made:
        next_at = f"fires next {clock(one['next_at'])}" if one["next_at"] else f"is {one['state']}"
        print(f"Schedule {one['id']} ({one['name']}) {next_at}.")


def _in_order(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that go in a circle come last, for the server to refuse them."""
    left, done = list(documents), []
    while ready := [one for one in left if not _waits(one, left)]:
        done += ready
        left = [one for one in left if one not in ready]
    return [*done, *left]


def _waits(one: dict[str, Any], others: list[dict[str, Any]]) -> bool:
    parents = one.get("parents") or []
    return isinstance(parents, list) and any(other.get("name") in parents for other in others)
