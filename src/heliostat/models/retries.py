"""What is worth another try, and how long to wait before it. Pure."""

import re
from dataclasses import dataclass

MAX_RETRY_DELAY_SECONDS = 3600
"""However often the delay has doubled."""
DEFAULT_RETRY_CAUSES = ("lost", "preempted")
RETRY_CAUSES = ("lost", "preempted", "timed_out", "out_of_memory", "exit")
_MOST_CAUSES = 20
_EXIT = re.compile(r"exit:(\d{1,3})", re.ASCII)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Which ends of an attempt are followed by another one, as long as a job has retries left."""

    on: tuple[str, ...] = DEFAULT_RETRY_CAUSES  # lost, preempted, timed_out, out_of_memory, exit, exit:75
    delay_seconds: int = 0  # before the first; twice as long before each further one

    def should_retry(self, cause: str, exit_code: int | None = None) -> bool:
        """Exit code 0 is no failure, and no reason to try again."""
        if cause != "exited":
            return cause in self.on
        return bool(exit_code) and ("exit" in self.on or f"exit:{exit_code}" in self.on)

    def next_delay_seconds(self, retries: int) -> int:
        """How long to wait when so many have been used already; never shorter than before, never for ever."""
        most = max(self.delay_seconds, MAX_RETRY_DELAY_SECONDS)
        return min(self.delay_seconds << min(retries, 30), most)


DEFAULT_RETRY_POLICY = RetryPolicy()


def parse_retry_on(value: object) -> tuple[str, ...]:
    """`lost,exit:75`, or a list of such words: each once. Raises ValueError with a sentence."""
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError("write causes as text: lost, preempted, timed_out, out_of_memory, exit, exit:75")
    if not 0 < len(words) <= _MOST_CAUSES:
        raise ValueError(f"name at least one cause and at most {_MOST_CAUSES}")
    return tuple(dict.fromkeys(_cause(word.strip()) for word in words))


def _cause(word: str) -> str:
    if word in RETRY_CAUSES:
        return word
    found = _EXIT.fullmatch(word)
    if found and 1 <= int(found[1]) <= 255:
        return f"exit:{int(found[1])}"
    if found:
        raise ValueError(f"{word!a} is no exit code of a failure; these are 1 to 255")
    raise ValueError(f"{word[:40]!a} is not one of {', '.join(RETRY_CAUSES)}, exit:75")
