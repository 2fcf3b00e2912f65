"""Prints an error as one line and a hint, on standard error."""

import sys


def print_error(message: str, hint: str | None = None) -> None:
    sys.stdout.flush()
    print(f"helio: {_one_line(message)}", file=sys.stderr)
    if hint:
        print(f"hint: {_one_line(hint)}", file=sys.stderr)


def _one_line(text: str) -> str:
    return " ".join(text.split())
