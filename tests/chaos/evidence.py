"""What jobs have said of themselves (see witness.sh), as facts to be checked."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

WITNESS = Path(__file__).with_name("witness.sh")


@dataclass(frozen=True)
class Line:
    kind: str  # start, term, end, clash
    attempt_id: str
    pid: int
    devices: tuple[str, ...]
    detail: str

    @property
    def job_id(self) -> int:
        return int(self.attempt_id.partition(".")[0])

    @property
    def attempt(self) -> int:
        return int(self.attempt_id.partition(".")[2])


class Evidence:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "lines").touch()

    def job(self, seconds: float | str, exit_code: int = 0) -> dict[str, object]:
        """The fields of a job that testifies."""
        return {"command": [str(WITNESS), str(seconds), str(exit_code)], "env": {"EVIDENCE": str(self.folder)}}

    def let_the_long_one_finish(self) -> None:
        (self.folder / "finish").touch()

    def lines(self, kind: str | None = None, job_id: int | None = None) -> list[Line]:
        text = (self.folder / "lines").read_text()
        found = [_parse(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [line for line in found if kind in (None, line.kind) and job_id in (None, line.job_id)]

    def attempts_that_ran_twice(self) -> list[str]:
        counts = Counter(line.attempt_id for line in self.lines("start"))
        return [attempt_id for attempt_id, count in counts.items() if count > 1]

    def clashes(self) -> list[Line]:
        """Something was taken that ought to have been free."""
        return self.lines("clash")

    def device_overlaps(self) -> list[tuple[str, str, str]]:
        """(device, attempt that had it, attempt that came before the first one's last word)."""
        over = {line.attempt_id for line in self.lines() if line.kind in ("term", "end")}
        holder: dict[str, str] = {}
        found = []
        for line in self.lines():
            for device in line.devices:
                if line.kind == "start":
                    if holder.get(device) in over:
                        found.append((device, holder[device], line.attempt_id))
                    holder[device] = line.attempt_id
                elif line.kind in ("term", "end") and holder.get(device) == line.attempt_id:
                    del holder[device]
        return found


def _parse(text: str) -> Line:
    kind, attempt_id, pid, devices, detail = text.split(" ")
    return Line(kind, attempt_id, int(pid), () if devices == "-" else tuple(devices.split(",")), detail)
