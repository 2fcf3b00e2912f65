"""Background loop of the idle ladder: notes, messages and further steps for jobs that do not use their GPUs."""

from functools import partial

from heliostat.controller.background_loop import BackgroundLoop
from heliostat.services.context import Context
from heliostat.services.fair_use.idle_ladder import check_idle_gpus

_CHECK_SECONDS = 60.0


class IdleGpuMonitor:
    def __init__(self, context: Context) -> None:
        run_once = partial(check_idle_gpus, context)
        self._loop = BackgroundLoop("idle-gpus", run_once, _CHECK_SECONDS, failure="idle_gpus_not_checked")

    def start(self) -> None:
        self._loop.start_after_interval()

    def close(self) -> None:
        self._loop.close()
