"""The command tree, loaded as far as it is needed, and the border at which errors become lines."""

import importlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from heliostat.cli.catalogue import COMMANDS, root_help_text
from heliostat.cli.coercion import install_light_converters
from heliostat.cli.error_output import print_error
from heliostat.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    HeliostatError,
    NotAuthenticated,
    NotFound,
    ServerUnreachable,
)

EXIT_CODES: dict[type[HeliostatError], int] = {
    BadRequest: 2,
    ServerUnreachable: 3,
    NotFound: 4,
    NotAuthenticated: 5,
    Forbidden: 5,
    Conflict: 6,
}
"""What scripts can tell apart; anything else is 1."""

_STYLE: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
# Fields of a request whose option has another name.
_RENAMED = {
    "time_limit_seconds": "time_limit",
    "gpu_memory_mib": "gpu_memory",
    "memory_mib": "memory",
    "labels": "label",
    "splits_devices": "split_gpus",
}
_ABOUT_FIELDS = re.compile(r"The fields are described at \S+|Change that field and try again\.")


def command_group(help_text: str) -> typer.Typer:
    """A command with commands below it: `helio node drain`."""
    return typer.Typer(help=help_text, **_STYLE)


class LazyGroup(TyperGroup):
    """Knows its commands by name and imports the one that is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.entry_point.partition(":")
        found = getattr(importlib.import_module(f"heliostat.cli.{module}"), attribute)
        command = get_command(found if isinstance(found, typer.Typer) else _single(cmd_name, found))
        command.name = cmd_name
        install_light_converters(command)
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(root_help_text())


def build_root_command() -> Any:
    """The whole tree as a command."""
    app = typer.Typer(name="helio", cls=LazyGroup, **{**_STYLE, "add_completion": True})
    app.callback()(_root)
    root = get_command(app)
    install_light_converters(root)
    return root


def run_command(words: list[str]) -> int:
    """Runs it; whatever goes wrong is one line and a hint, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = build_root_command().main(words, prog_name="helio", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except HeliostatError as error:
        return _refused(error, words)
    except typer.TyperException as error:
        return _said(error.format_message(), _usage_hint(error), error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except Exception as error:  # noqa: BLE001 - the border: a person must not meet a traceback
        return _unexpected(error)


def _root() -> None:
    """One queue for the GPUs of a lab."""


def _single(name: str, function: Any) -> typer.Typer:
    app = typer.Typer(**_STYLE)
    settings = {**_STYLE["context_settings"], **getattr(function, "context_settings", {})}
    app.command(name, context_settings=settings)(function)
    return app


def _refused(error: HeliostatError, words: list[str]) -> int:
    """In the words of the command line: the server speaks of fields, people typed options."""
    message, hint = error.message, error.hint
    if isinstance(error, BadRequest):
        command, options = _options_of(build_root_command(), words)
        if options:
            message = _in_options(message, options)
            hint = hint and _hint_in_options(hint, options, command)
    return _said(message, hint, _exit_code(error))


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
        return _said(f"{name}{error.strerror}", None, 1)
    hint = "This is a mistake in Heliostat. HELIOSTAT_DEBUG=1 shows where."
    return _said(f"{type(error).__name__}: {error}", hint, 1)


def _said(message: str, hint: str | None, code: int) -> int:
    print_error(message, hint)
    return code


def _in_options(text: str, options: Mapping[str, str]) -> str:
    """A field is known by its place at the beginning (`cpus: must be…`), or by its underscore."""
    text = re.sub(r"^(\w+)(?:\.\d+)?(?=[:.])", lambda found: options.get(found[1], found[1]), text)
    return re.sub(r"(?<![\w-])[a-z]+(?:_[a-z]+)+\b", lambda found: options.get(found[0], found[0]), text)


def _hint_in_options(hint: str, options: Mapping[str, str], command: str) -> str:
    return _in_options(_ABOUT_FIELDS.sub(f"See helio {command} --help.", hint), options)


def _options_of(root: Any, words: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The command these words begin with, and by what option it takes each field. None for `submit`, which reads
    the API's own words from a file."""
    command = root
    path: list[str] = []
    for word in words:
        below = command.get_command(None, word) if hasattr(command, "get_command") else None
        if below is None:
            break
        command, path = below, [*path, word]
    if path in ([], ["submit"]):
        return " ".join(path), {}
    typed = [param for param in command.params if param.opts[0].startswith("-")]
    options = {param.name: max(param.opts, key=len) for param in typed}
    renamed = {field: options[name] for field, name in _RENAMED.items() if name in options}
    return " ".join(path), renamed | options
