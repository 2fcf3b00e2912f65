"""Runs a command line; an error becomes a message and an exit code."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer

from heliostat.cli.command_tree import EXIT_CODES, build_root_command
from heliostat.cli.error_output import print_error
from heliostat.errors import (
    BadRequest,
    HeliostatError,
)

# Request fields whose option has a different name.
_RENAMED = {
    "time_limit_seconds": "time_limit",
    "gpu_memory_mib": "gpu_memory",
    "memory_mib": "memory",
    "labels": "label",
    "splits_devices": "split_gpus",
    "schedule": "at",
    "time_zone": "zone",
    "ends_after": "times",
    "parents": "after",
    "from": "first_day",
    "to": "last_day",
}
_ABOUT_JOB_FIELDS = re.compile(r"The fields of a job are described in \S+")
_ABOUT_FIELDS = re.compile(r"The fields are described in \S+|Change that field and try again\.")


def run_command(arguments: list[str]) -> int:
    """Runs a command and returns its exit code; prints an error as one line and a hint, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = build_root_command().main(arguments, prog_name="helio", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except HeliostatError as error:
        return _print_refusal(error, arguments)
    except typer.TyperException as error:
        return _print_and_exit(_one_line(error.format_message()), _usage_hint(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except Exception as error:  # noqa: BLE001 - users see no tracebacks
        return _unexpected(error)


def _print_refusal(error: HeliostatError, arguments: list[str]) -> int:
    """Prints the server's error with the names of options in place of request fields."""
    message, hint = error.message, error.hint
    if isinstance(error, BadRequest):
        command, options = _options_of(build_root_command(), arguments)
        message = _in_options(message, options)
        hint = hint and _hint_in_options(hint, options, command)
    return _print_and_exit(message, hint, _exit_code(error))


def _exit_code(error: HeliostatError) -> int:
    return next((code for cls, code in EXIT_CODES.items() if isinstance(error, cls)), 1)


def _usage_hint(error: typer.TyperException) -> str | None:
    context = getattr(error, "ctx", None)
    return f"See {context.command_path} --help." if context is not None else None


def _unexpected(error: Exception) -> int:
    if os.environ.get("HELIOSTAT_DEBUG"):
        raise error
    if isinstance(error, OSError) and error.strerror:
        name = f"{error.filename}: " if error.filename else ""
        return _print_and_exit(f"{name}{error.strerror}", None, 1)
    hint = "This is a bug in Heliostat. Set HELIOSTAT_DEBUG=1 to see the traceback."
    return _print_and_exit(_one_line(f"{type(error).__name__}: {error}"), hint, 1)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _print_and_exit(message: str, hint: str | None, code: int) -> int:
    print_error(message, hint)
    return code


def _in_options(text: str, options: Mapping[str, str]) -> str:
    """Recognizes a field at the beginning of a line (`cpus: must be…`, `job.cpus:`) or by its underscore."""
    if "memory" in options:  # the fields of a job are options, not in a file
        text = re.sub(r"^job\.", "", text, flags=re.M)
    text = re.sub(r"^(\w+)(?:\.\d+)?(?=[:.])", lambda found: options.get(found[1], found[0]), text, flags=re.M)
    return re.sub(r"(?<![\w-])[a-z]+(?:_[a-z]+)+\b", lambda found: options.get(found[0], found[0]), text)


def _hint_in_options(hint: str, options: Mapping[str, str], command: str) -> str:
    """Only the help of `submit`, and of commands with options for the fields of a job, describes these fields."""
    hint = _ABOUT_JOB_FIELDS.sub(f"See helio {command if 'memory' in options else 'submit'} --help.", hint)
    return _in_options(_ABOUT_FIELDS.sub(f"See helio {command} --help.", hint), options)


def _options_of(root: Any, arguments: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The command that these arguments begin with, and its option for each request field. No options for `submit`
    and `simulate`: their errors name fields of files."""
    command = root
    path: list[str] = []
    for argument in arguments:
        subcommand = command.get_command(None, argument) if hasattr(command, "get_command") else None
        if subcommand is None:
            break
        command, path = subcommand, [*path, argument]
    if path in ([], ["submit"], ["simulate"]):
        return " ".join(path), {}
    options_given = [param for param in command.params if param.opts[0].startswith("-")]
    options = {param.name: max(param.opts, key=len) for param in options_given}
    renamed = {field: options[name] for field, name in _RENAMED.items() if name in options}
    return " ".join(path), renamed | options
