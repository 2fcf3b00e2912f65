"""What the server notes about each hand-over, on disk, so that a killed one leaves nothing doubled or lost.

`attempts/12.1.slurm` is made before the submission (`uid 1001`) and completed after it (`uid 1001 job 4711`).
An attempt that must never be submitted has `disowned`.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from heliostat.models import AttemptId

_SUFFIX = ".slurm"
_TEXT = re.compile(r"uid (\d{1,10})(?: job (\d{1,10}))?")


@dataclass(frozen=True, slots=True)
class Trace:
    uid: int | None  # None: disowned
    number: int | None = None  # None: it is not known whether Slurm has it

    @property
    def is_disowned(self) -> bool:
        return self.uid is None


def trace_in(text: str) -> Trace:
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        return Trace(None)
    return Trace(int(found[1]), int(found[2]) if found[2] else None)


class Traces:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, attempt_id: AttemptId) -> Trace | None:
        try:
            text = self._path(attempt_id).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return trace_in(text)

    def put(self, attempt_id: AttemptId, trace: Trace) -> None:
        """All of it or nothing."""
        job = "" if trace.number is None else f" job {trace.number}"
        text = "disowned" if trace.uid is None else f"uid {trace.uid}{job}"
        draft = self._folder / f"{attempt_id}.draft"
        draft.write_text(text + "\n", encoding="utf-8")
        os.replace(draft, self._path(attempt_id))

    def remove(self, attempt_ids: Iterable[AttemptId]) -> None:
        for attempt_id in attempt_ids:
            self._path(attempt_id).unlink(missing_ok=True)

    def ids(self) -> Iterator[AttemptId]:
        return (path.name.removesuffix(_SUFFIX) for path in self._folder.glob(f"*{_SUFFIX}"))

    def _path(self, attempt_id: AttemptId) -> Path:
        return self._folder / f"{attempt_id}{_SUFFIX}"
