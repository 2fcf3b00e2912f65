"""Options in the first comment lines of a script: `#HELIO --gpus 2`, and `#SBATCH` lines of Slurm."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer

from heliostat.cli.job_defaults import merge_job_fields
from heliostat.cli.job_options import parse_option_words
from heliostat.cli.output import print_message
from heliostat.cli.sbatch_options import translate_sbatch_options

_MARKS = ("#HELIO", "#SBATCH")
_MAX_SCRIPT_BYTES = 2**20


class ScriptOptions(NamedTuple):
    """The job fields that a script asks for."""

    helio: dict[str, Any]
    sbatch: dict[str, Any]
    ignored: list[str]  # options of #SBATCH lines that have no meaning here


def read_script(path: str) -> str | None:
    """The text of a script; None if the file is something else."""
    try:
        if not Path(path).is_file():  # a pipe could block
            return None
        with Path(path).open("rb") as file:
            data = file.read(_MAX_SCRIPT_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, ValueError):
        return None
    return text if text.startswith("#!") else None


def has_script_options(text: str) -> bool:
    return any(_header_lines(text))


def read_script_options(text: str) -> ScriptOptions:
    """Raises BadParameter, with the line."""
    helio: dict[str, Any] = {}
    sbatch_words: list[str] = []
    for number, mark, rest in _header_lines(text):
        try:
            words = shlex.split(rest, comments=True)
            if mark == "#HELIO":
                helio = merge_job_fields(helio, parse_option_words(words))
            else:
                sbatch_words += words
        except ValueError as error:
            raise _line_error(number, mark, f"{error}.") from error
        except typer.TyperException as error:
            raise _line_error(number, mark, error.format_message()) from error
    sbatch, ignored = translate_sbatch_options(sbatch_words)
    return ScriptOptions(helio, sbatch, ignored)


def warn_about_late_options(text: str) -> None:
    """As in Slurm, options below the first command have no effect."""
    for number, mark, rest, is_header in _marked_lines(text):
        if not is_header:
            print_message(f"Ignored line {number}, below the first command: {mark} {rest}")


def _header_lines(text: str) -> Iterator[tuple[int, str, str]]:
    """(line number, mark, rest) of the comments at the beginning, as in Slurm."""
    return ((number, mark, rest) for number, mark, rest, is_header in _marked_lines(text) if is_header)


def _marked_lines(text: str) -> Iterator[tuple[int, str, str, bool]]:
    """(line number, mark, rest, whether it is above the first command)."""
    is_header = True
    for number, line in enumerate(text.splitlines(), 1):
        is_header = is_header and (not line.strip() or line.startswith("#"))
        mark, _, rest = line.partition(" ")
        if mark in _MARKS:
            yield number, mark, rest, is_header


def _line_error(number: int, mark: str, problem: str) -> typer.BadParameter:
    return typer.BadParameter(f"Line {number}, {mark}: {problem}", param_hint="script")
