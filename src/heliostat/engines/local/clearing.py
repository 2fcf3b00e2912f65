"""Nothing of an attempt is left when its end is told: its devices and its place go to somebody else."""

import time

from heliostat.engines.local.cgroups import Group
from heliostat.engines.local.devices import Devices
from heliostat.engines.local.endings import Running, ended, ran_out_of_memory, utc_now
from heliostat.engines.local.trace import Ending, Traces
from heliostat.engines.local.ungrouped import led, marked
from heliostat.models import Cause, Ended
from heliostat.server_log import get_logger

log = get_logger()
# The tool that holds a container tells the exit code and goes; its last process is gone a moment later by itself.
_ENDS_BY_ITSELF, _MOMENT_SECONDS = 8, 0.0002
_NEVER_BEGAN = "it could not be started: its supervising shell was killed"


class ProcessesLeft(Exception):
    """Not even KILL has ended them yet, as when they hang in the kernel."""


class Clearing:
    def __init__(self, traces: Traces, instance: str, devices: Devices) -> None:
        self._traces, self._instance, self._devices = traces, instance, devices

    def usual_end(self, running: Running) -> Ended | None:
        """With an exit status and nothing left. Only a group that is empty can be removed."""
        if running.attempt.devices and self._devices.are_real:
            return None  # the driver must be asked, which may take its time
        ending = self._traces.ending(running.attempt.id)
        if ending.exit_code is None or not self._removed(running, ending):
            return None
        return ended(running, ending)

    def end(self, running: Running) -> Ended:
        """Whatever it takes, and however long. ProcessesLeft when it is not over yet."""
        ending = self._traces.ending(running.attempt.id)
        if ending.exit_code is None and self._traces.disown(running.attempt.id):
            running.group.remove()
            return Ended(running.attempt.id, utc_now(), Cause.NOT_STARTED, detail=_NEVER_BEGAN)
        self._kill_what_is_left(running, ending)
        if ending.exit_code is None and not self._left_by_wrapper(running).kill():
            raise ProcessesLeft(running.attempt.id)  # the wrapper was killed, and its watch of the limit lives
        self._give_back_devices(running)
        return ended(running, ending)

    def _kill_what_is_left(self, running: Running, ending: Ending) -> None:
        for tries in range(100):
            if self._removed(running, ending):
                return
            if tries < _ENDS_BY_ITSELF and running.is_contained and ending.exit_code is not None:
                time.sleep(_MOMENT_SECONDS)
                continue
            if not running.group.kill():
                raise ProcessesLeft(running.attempt.id, running.group.pids()[:20])
            # The kernel may call a group busy for a moment after its last process, most often after a container.
            time.sleep(min(0.01, 0.0005 * 2**tries))

    def _removed(self, running: Running, ending: Ending) -> bool:
        if ending.exit_code != 0 and ran_out_of_memory(running, ending):  # the count goes with the group
            running.out_of_memory = True
        return running.group.remove()

    def _left_by_wrapper(self, running: Running) -> Group:
        """The process that enforces its limit: in its session, not in the cgroup. The claim on disk says
        when the wrapper was born: by now its pid may belong to another process."""
        claim = self._traces.claim(running.attempt.id) or running.claim
        return led(marked(self._instance, running.attempt.id), claim)

    def _give_back_devices(self, running: Running) -> None:
        running.is_over = True
        devices = running.attempt.devices
        if devices and self._devices.are_real and not self._devices.wait_until_left(running.attempt.id, devices):
            log.warning("devices_not_empty", attempt=running.attempt.id, devices=devices)
