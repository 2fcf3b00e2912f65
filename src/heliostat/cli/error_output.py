"""Prints an error and a hint, on standard error."""

import sys


def print_error(message: str, hint: str | None = None) -> None:
    """The message has a line for each problem."""
    sys.stdout.flush()
    _print_lines("helio: ", message)
    _print_lines("hint: ", hint or "")


def _print_lines(label: str, text: str) -> None:
    from heliostat.cli.output import sanitize_text

    for number, line in enumerate(filter(None, (" ".join(line.split()) for line in text.splitlines()))):
        print(f"{' ' * len(label) if number else label}{sanitize_text(line)}", file=sys.stderr)
