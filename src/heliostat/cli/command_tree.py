"""The `helio` command tree; modules of commands are imported when they are needed."""

import difflib
import importlib
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from heliostat.cli.command_catalogue import COMMANDS, root_help_text
from heliostat.cli.typer_converters import install_light_converters
from heliostat.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    HeliostatError,
    NotAuthenticated,
    NotFound,
    ServerUnreachable,
    WaitTimedOut,
)

EXIT_CODES: dict[type[HeliostatError], int] = {
    BadRequest: 2,
    ServerUnreachable: 3,
    NotFound: 4,
    NotAuthenticated: 5,
    Forbidden: 5,
    Conflict: 6,
    WaitTimedOut: 7,
}
"""Exit codes by error class; any other error is 1."""

_STYLE: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def command_group(help_text: str) -> typer.Typer:
    """A command with subcommands, such as `helio node drain`."""
    return typer.Typer(help=help_text, cls=SuggestingGroup, **_STYLE)


class SuggestingGroup(TyperGroup):
    """A group that suggests a similar name for an unknown command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            similar = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
            ctx.fail(f"No such command {args[0]!r}" + (f" (did you mean {similar[0]}?)." if similar else "."))
        return super().resolve_command(ctx, args)


class LazyGroup(SuggestingGroup):
    """Lists all commands by name and imports only the module of the requested one."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.entry_point.partition(":")
        loaded = getattr(importlib.import_module(f"heliostat.cli.{module}"), attribute)
        command = get_command(loaded if isinstance(loaded, typer.Typer) else _single(cmd_name, loaded))
        command.name = cmd_name
        install_light_converters(command)
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(root_help_text())


def build_root_command() -> Any:
    """The root command with all commands."""
    app = typer.Typer(name="helio", cls=LazyGroup, **{**_STYLE, "add_completion": True})
    app.callback()(_root)
    root = get_command(app)
    install_light_converters(root)
    return root


def _root() -> None:
    """One job queue for all GPUs of a research group."""


def _single(name: str, function: Any) -> typer.Typer:
    app = typer.Typer(**_STYLE)
    settings = {**_STYLE["context_settings"], **getattr(function, "context_settings", {})}
    app.command(name, context_settings=settings)(function)
    return app
