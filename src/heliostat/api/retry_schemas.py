"""The fields of a job that say what is worth another try, and of what its owner wants to be told."""

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from heliostat.models.notices import parse_occasions
from heliostat.models.retries import parse_retry_on


def _retry_on(value: object) -> tuple[str, ...] | None:
    return None if value is None else parse_retry_on(value)


def _notify(value: object) -> tuple[str, ...]:
    return () if value is None else parse_occasions(value)


_WORDS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
RetryOn = Annotated[tuple[str, ...] | None, BeforeValidator(_retry_on), WithJsonSchema(_WORDS)]
Notify = Annotated[tuple[str, ...], BeforeValidator(_notify), WithJsonSchema(_WORDS)]


def check_retry(max_retries: int, on: tuple[str, ...] | None, delay_seconds: int) -> None:
    """Who says after what to try again means to: without a number nothing ever would be."""
    if not max_retries and (on is not None or delay_seconds):
        raise ValueError("retry_on and retry_delay say how max_retries are used: say how many, such as 3")
