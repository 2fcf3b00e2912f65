"""What running jobs use. Slurm's `sstat` asks every node of a job, some 30 ms for each: so a few are asked for at
a time, now and then, in a thread of its own, and until the next look the last one counts.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.live_read import Live
from heliostat.engines.slurm.refreshed import Refreshed
from heliostat.models import AttemptId, DeviceReading, Reading

MOST_AT_ONCE = 50
_LATE = 2.5  # times the time between two looks: what is older than that is not shown


@dataclass(frozen=True, slots=True)
class Running:
    """An attempt that runs in Slurm."""

    number: int
    devices: int  # GPUs it holds


@dataclass(frozen=True, slots=True)
class _Seen:
    live: Live
    reading: Reading
    at: float  # by the monotonic clock


class LiveUse:
    """`seconds` between two looks; 0: nobody looks."""

    def __init__(
        self, commands: Commands, seconds: float, running: Callable[[], Mapping[AttemptId, Running]]
    ) -> None:
        self._commands, self._seconds, self._running = commands, seconds, running
        self._looks: Refreshed[None] = Refreshed("slurm_live_use", self.look, seconds)
        self._asked: dict[AttemptId, float] = {}  # when each was last asked for
        self._seen: dict[AttemptId, _Seen] = {}

    def readings(self) -> dict[AttemptId, Reading]:
        """Of those that run now, as far as it is known. Returns at once, and begins a look if the last is old."""
        if not self._seconds:
            return {}
        self._looks.if_old()
        running, now, seen = self._running(), time.monotonic(), self._seen
        oldest = now - _LATE * self._seconds * max(1, math.ceil(len(running) / MOST_AT_ONCE))
        return {one: seen[one].reading for one in running if one in seen and seen[one].at > oldest}

    def look(self) -> None:
        """At those that have waited longest for it."""
        running = self._running()
        asked = {one: at for one, at in self._asked.items() if one in running}
        chosen = sorted(running, key=lambda one: asked.get(one, -math.inf))[:MOST_AT_ONCE]
        found = self._commands.live_uses([running[one].number for one in chosen]) if chosen else {}
        now = time.monotonic()
        self._asked = asked | dict.fromkeys(chosen, now)
        seen = {one: old for one, old in self._seen.items() if one in running}
        for one in chosen:
            if (live := found.get(running[one].number)) is not None:
                seen[one] = _Seen(live, _reading(live, seen.get(one), running[one], now), now)
        self._seen = seen


def _reading(live: Live, before: _Seen | None, running: Running, now: float) -> Reading:
    """Cpus are those kept busy since the look before: of the first nothing is known."""
    cpus = None
    if before is not None and now > before.at:
        cpus = max(0.0, live.cpu_seconds - before.live.cpu_seconds) / (now - before.at)
    devices: tuple[DeviceReading, ...] = ()
    if running.devices and live.gpu_percent is not None:
        each = min(100.0, live.gpu_percent / running.devices)
        memory = None if live.gpu_memory_mib is None else live.gpu_memory_mib / running.devices
        devices = (DeviceReading(each, memory),) * running.devices
    return Reading(cpus, live.memory_mib, devices)
