"""Log order: records the order in which a job writes to stdout and stderr, so that both can be shown merged.

The streams are two files. When one grows after the other, the size of the other is recorded: a line of `N.order`
means "up to this byte, this stream came next". A job that writes to one stream only has no such file. Output
written while no server runs is shown stream by stream.
"""

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from heliostat.engines.job_folders import JobFolder
from heliostat.inotify import Inotify
from heliostat.models import AttemptId

STREAMS = ("stdout", "stderr")
_PAUSE_SECONDS = 0.002  # between reads, so that a job with endless output does not use a core
_REMOVE_BATCH = 64  # removing a watch wakes the thread, so it is done in batches
_MAX_MARKS = 20_000  # of one attempt; later output is shown stream by stream


@dataclass(slots=True)
class _Watched:
    number: int  # of the attempt
    folder: JobFolder
    stream: str | None = None  # the one that grew last
    marks: int = 0


class LogOrderRecorder:
    """One thread for all running attempts."""

    def __init__(self) -> None:
        self._inotify = Inotify(blocking=True, appearing=False)
        self._watched: dict[int, _Watched] = {}
        self._numbers: dict[AttemptId, int] = {}
        self._unused: set[int] = set()  # watches to remove
        self._lock = threading.Lock()
        if self._inotify.descriptor >= 0:
            threading.Thread(target=self._run, name="log-order", daemon=True).start()

    def start_recording(self, attempt_id: AttemptId, folder: JobFolder, attempt: int) -> None:
        with self._lock:
            number = self._inotify.add_watch(folder.path)
            if number is not None:
                self._watched[number] = _Watched(attempt, folder)
                self._numbers[attempt_id] = number
                self._unused.discard(number)  # the kernel returns the same number for the same folder

    def stop_recording(self, attempt_id: AttemptId) -> None:
        with self._lock:
            number = self._numbers.pop(attempt_id, None)
            if number is None:
                return
            self._watched.pop(number, None)
            self._unused.add(number)
            if len(self._unused) >= _REMOVE_BATCH:
                for unused in self._unused:
                    self._inotify.remove_watch(unused)
                self._unused.clear()

    def _run(self) -> None:
        while True:
            changes = self._inotify.read_changes()
            with self._lock:
                for number, name in changes:
                    if watched := self._watched.get(number):
                        self._note(watched, name)
            time.sleep(_PAUSE_SECONDS)

    def _note(self, watched: _Watched, name: str) -> None:
        attempt, _, stream = name.partition(".")
        if stream not in STREAMS or attempt != str(watched.number) or stream == watched.stream:
            return
        before, watched.stream = watched.stream, stream
        if before is None or watched.marks >= _MAX_MARKS:
            return
        watched.marks += 1
        try:
            size = os.stat(watched.folder.log_path(watched.number, before)).st_size
            with open(watched.folder.log_path(watched.number, "order"), "a", encoding="ascii") as file:
                file.write(f"{before} {size}\n")
        except OSError:
            watched.marks = _MAX_MARKS  # the disk is full: stop recording, since the order is not essential


def read_log_order(path: Path) -> list[tuple[str, int]]:
    """The marks in order: (stream, up to this byte). Empty if none were recorded."""
    try:
        lines = path.read_text(encoding="ascii").split("\n")[:-1]
    except (OSError, UnicodeDecodeError):
        return []
    return [(stream, int(size)) for stream, _, size in (line.partition(" ") for line in lines)]
