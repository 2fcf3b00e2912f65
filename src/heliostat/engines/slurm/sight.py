"""What Slurm has: nodes, partitions, reservations, as of a few seconds ago, in our words."""

import time
from collections.abc import Callable
from dataclasses import replace

from heliostat.engines.slurm.arrays import MAX_ARRAY_SIZE
from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.machines import node_of
from heliostat.engines.slurm.partitions import Picture, in_our_words
from heliostat.engines.slurm.rounds import Rounds
from heliostat.models import Node

_OLD_SECONDS = 5.0


class Sight:
    """Taken by the one who talks to Slurm, read by everybody. What submissions need of it is told to `rounds`."""

    def __init__(self, commands: Commands, rounds: Rounds) -> None:
        self._commands, self._rounds = commands, rounds
        self.nodes: list[Node] = []
        self.picture = Picture()
        self.max_array_size = MAX_ARRAY_SIZE
        self.on_change: Callable[[], None] = lambda: None
        self._old_at = 0.0

    @property
    def device_types(self) -> dict[str, str]:
        """By uuid."""
        return {device.uuid: device.type for node in self.nodes for device in node.devices}

    def look_if_old(self) -> None:
        if time.monotonic() >= self._old_at:
            self.look()

    def look(self) -> None:
        self._look_at_partitions()
        found = [node_of(node) for node in self.picture.nodes]
        nodes = in_our_words(found, self.picture, self._rounds.site.terms)
        self._old_at = time.monotonic() + _OLD_SECONDS
        if nodes != self.nodes:
            self.nodes = nodes
            self.on_change()

    def _look_at_partitions(self) -> None:
        self.picture = self._commands.picture()
        self.max_array_size = self._commands.max_array_size() or MAX_ARRAY_SIZE
        self._rounds.reservations = [one.name for one in self.picture.reservations or ()]
        site = self._rounds.site
        terms = site.terms.seeing(self.picture.gpu_types)
        self._rounds.site = replace(site, terms=terms, longest_seconds=self.picture.longest_seconds)
