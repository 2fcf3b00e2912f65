"""Makes and deletes reservations in Slurm: all of one's weeks, or none."""

import contextlib
from collections.abc import Collection
from datetime import UTC, datetime

from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.programs import SlurmRefused
from heliostat.engines.slurm.reservations import names_of, words_to_create
from heliostat.errors import Conflict, EngineUnavailable
from heliostat.models import Reservation


def create(commands: Commands, wish: Reservation, unix_users: Collection[str]) -> None:
    """Raises Conflict or EngineUnavailable; what was made until then is taken back."""
    made: list[str] = []
    try:
        for name, words in words_to_create(wish, unix_users, datetime.now(UTC)):
            commands.create_reservation(words)
            made.append(name)
    except SlurmRefused as error:
        _take_back(commands, made)
        raise Conflict(f"Slurm refuses it: {error}.", "See `scontrol show reservation`.") from error
    except EngineUnavailable:
        _take_back(commands, made)
        raise


def delete(commands: Commands, reservation: Reservation) -> None:
    """Already gone is success. Raises Conflict or EngineUnavailable."""
    known = {one.name for one in commands.reservations()}
    for name in names_of(reservation):
        try:
            if name in known:
                commands.delete_reservation(name)
        except SlurmRefused as error:
            hint = "See `scontrol show reservation`; jobs that run in it must end first."
            raise Conflict(f"Slurm refuses it: {error}.", hint) from error


def _take_back(commands: Commands, made: Collection[str]) -> None:
    for name in made:
        with contextlib.suppress(SlurmRefused, EngineUnavailable):
            commands.delete_reservation(name)
