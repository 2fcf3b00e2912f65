"""Tests a card that had an error, before jobs use it again."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from heliostat.engines.contract import GpuTestStep
from heliostat.engines.local.gpu_monitor import GpuMonitor
from heliostat.errors import Conflict
from heliostat.models import Device
from heliostat.models.gpu_errors import describe_error, find_error_kind
from heliostat.payloads import gpu_memory_test

_PROGRAM = Path(gpu_memory_test.__file__)
_PROGRAM_SECONDS = 90.0
_MAX_DETAIL_LENGTH = 300


class GpuTests:
    """One at a time."""

    def __init__(self, devices: GpuMonitor, watch_seconds: float = 5.0) -> None:
        """`watch_seconds`: how long the driver must report no error after the test of the memory."""
        self._devices, self._watch_seconds = devices, watch_seconds
        self._lock = threading.Lock()

    def run(self, card: str) -> list[GpuTestStep]:
        if not self._lock.acquire(blocking=False):
            raise Conflict("Another GPU is being tested.", "Try again in two minutes.")
        try:
            return list(_until_failure(self._steps(card)))
        finally:
            self._lock.release()

    def _steps(self, card: str) -> Iterator[GpuTestStep]:
        devices, attempts = self._devices.read_card(card)
        yield _driver_step(devices)
        jobs = ", ".join(sorted({attempt_id.partition(".")[0] for attempt_id in attempts}))
        yield _step("no job", not jobs, f"job {jobs} uses it; wait for its end or cancel it")
        used = next((device.used_outside for device in devices if device.used_outside), None)
        yield _step("no other process", used is None, used or "")
        for device in devices:
            yield _test_memory(device.uuid)
        time.sleep(self._watch_seconds)
        yield _driver_step(self._devices.read_card(card)[0], f"no new error in {self._watch_seconds:g} s")


def _until_failure(steps: Iterator[GpuTestStep]) -> Iterator[GpuTestStep]:
    for step in steps:
        yield step
        if step.passed is False:
            return


def _step(name: str, passed: bool, problem: str) -> GpuTestStep:
    return GpuTestStep(name, passed, "" if passed else problem)


def _driver_step(devices: Sequence[Device], name: str = "the driver reports no error") -> GpuTestStep:
    problems = [device.problem for device in devices if device.problem]
    kinds = {kind for device in devices for kind, _ in device.errors}
    problems += [describe_error(kind) for kind in sorted(kinds) if find_error_kind(kind).takes_out]
    if not devices:
        problems = ["the driver does not list it"]
    return _step(name, not problems, problems[0] if problems else "")


def _test_memory(uuid: str) -> GpuTestStep:
    name = "memory can be written and read"
    command = [sys.executable, "-I", str(_PROGRAM)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": uuid}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=_PROGRAM_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return GpuTestStep(name, False, f"the test did not end in {_PROGRAM_SECONDS:g} s")
    try:
        found = json.loads(done.stdout)
    except ValueError:
        problem = done.stderr.decode("utf-8", "replace").strip()[-_MAX_DETAIL_LENGTH:]
        return GpuTestStep(name, False, f"the test ended with exit code {done.returncode}: {problem}")
    return GpuTestStep(name, found["passed"], str(found["detail"])[:_MAX_DETAIL_LENGTH])
