"""Retry policy of jobs: causes and delays. Pure."""

import re
from dataclasses import dataclass

MAX_RETRY_DELAY_SECONDS = 3600
DEFAULT_RETRY_CAUSES = ("lost", "preempted")
RETRY_CAUSES = ("lost", "preempted", "timed_out", "out_of_memory", "exit")
_MAX_CAUSES = 20
_EXIT = re.compile(r"exit:(\d{1,3})", re.ASCII)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The end causes of an attempt after which a job with remaining retries is started again."""

    on: tuple[str, ...] = DEFAULT_RETRY_CAUSES  # lost, preempted, timed_out, out_of_memory, exit, exit:75
    delay_seconds: int = 0  # before the first retry; it doubles with each further one

    def should_retry(self, cause: str, exit_code: int | None = None) -> bool:
        """Exit code 0 is never retried."""
        if cause != "exited":
            return cause in self.on
        return bool(exit_code) and ("exit" in self.on or f"exit:{exit_code}" in self.on)

    def next_delay_seconds(self, retries: int) -> int:
        """Delay after this number of retries. It never decreases and has an upper limit."""
        longest = max(self.delay_seconds, MAX_RETRY_DELAY_SECONDS)
        return min(self.delay_seconds << min(retries, 30), longest)


DEFAULT_RETRY_POLICY = RetryPolicy()


def parse_retry_on(value: object) -> tuple[str, ...]:
    """`lost,exit:75`, or a list: each cause once. Raises ValueError."""
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError("write causes as text: lost, preempted, timed_out, out_of_memory, exit, exit:75")
    if not 0 < len(words) <= _MAX_CAUSES:
        raise ValueError(f"name at least one cause and at most {_MAX_CAUSES}")
    return tuple(dict.fromkeys(_cause(word.strip()) for word in words))


def _cause(word: str) -> str:
    if word in RETRY_CAUSES:
        return word
    match = _EXIT.fullmatch(word)
    if match and 1 <= int(match[1]) <= 255:
        return f"exit:{int(match[1])}"
    if match:
        raise ValueError(f"{word!a} is not valid: exit codes of failures are 1 to 255")
    raise ValueError(f"{word[:40]!a} is not one of {', '.join(RETRY_CAUSES)}, exit:75")
