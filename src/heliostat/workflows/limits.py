"""How large a workflow may become: counted while it is made, so that a small file never fills the memory."""

from heliostat.errors import Invalid, TooLarge
from heliostat.models.dependencies import MOST_PAIRS
from heliostat.workflows.refusing import wrong

MOST_BYTES = 64 * 2**20  # of all jobs, written out
MOST_LOOKUPS = 1_000_000  # of values other jobs hand on: names in expressions times the jobs that are needed


class Room:
    """What is left for one workflow."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_lookups: int = MOST_LOOKUPS) -> None:
        self._most_bytes, self._most_lookups = most_bytes, most_lookups
        self._bytes, self._pairs, self._lookups = most_bytes, MOST_PAIRS, most_lookups

    def take_bytes(self, count: int) -> None:
        """Raises TooLarge."""
        self._bytes -= count
        if self._bytes < 0:
            raise TooLarge(
                f"Written out, these jobs take more than {self._most_bytes // 2**20} MiB.",
                "Put the script, or the values of env, into a file on the node and name the file.",
            )

    def take_pairs(self, count: int) -> None:
        """Raises Invalid."""
        self._pairs -= count
        if self._pairs < 0:
            raise too_many_pairs(f"more than {MOST_PAIRS:,}")

    def take_lookups(self, job: str, count: int) -> None:
        """Raises Invalid."""
        self._lookups -= count
        if self._lookups < 0:
            why = f"looks more than {self._most_lookups:,} times at what other jobs hand on"
            raise wrong(f"jobs.{job}", why, "Let a small job in between gather these values, and hand on a few.")


def too_many_pairs(told: str) -> Invalid:
    hint = "Put a small job in between that needs all of them, and let the others need that one."
    return wrong("jobs", f"makes {told} pairs of a job and one it needs; {MOST_PAIRS:,} are allowed", hint)
