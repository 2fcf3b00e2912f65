"""Types of fields that requests of several kinds have."""

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints


def one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be one line of printable characters")
    if not text.strip():
        raise ValueError("must not be empty")
    return text.strip()


SingleLine = Annotated[str, StringConstraints(min_length=1, max_length=128, strict=True), AfterValidator(one_line)]
StrictInteger = Annotated[int, Field(strict=True)]
