"""Values of the command line as Python's, for the few types our commands use.

Typer does this with pydantic, whose import alone takes longer than most of our commands. Its parameters keep
what converts them in `_runtime_param`, made on first use; we put ours there beforehand. Should a later Typer
look elsewhere, commands work as before, only slower.
"""

from collections.abc import Callable
from typing import Any, get_args, get_origin

import typer

_SIMPLE: dict[Any, Callable[[str], Any]] = {str: str, int: int, float: float}
_WORDS = {int: "a whole number", float: "a number"}


def install_light_converters(command: Any, parent: Any = None) -> None:
    """Spares this command, and those below it, the import of pydantic."""
    context = typer.Context(command, parent=parent, **command.context_settings)
    for below in getattr(command, "commands", {}).values():
        install_light_converters(below, context)
    for param in (*command.params, command.get_help_option(context)):
        descriptor = getattr(param, "type_descriptor", None)
        annotation = getattr(descriptor, "annotation", None)
        element = get_args(annotation)[0] if get_origin(annotation) is list else annotation
        if element in _SIMPLE or element is bool:
            param._runtime_param = _Conversion(element)


class _Conversion:
    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        many = param.multiple or param.nargs == -1
        if value is None:
            return () if many else None
        if many:
            return tuple(self._one(item, param, ctx) for item in value)
        return self._one(value, param, ctx)

    def _one(self, value: Any, param: Any, ctx: Any) -> Any:
        if self._kind is bool or not isinstance(value, str):
            return value
        try:
            converted = _SIMPLE[self._kind](value)
        except ValueError:
            raise typer.BadParameter(f"{value!r} is not {_WORDS[self._kind]}.", ctx=ctx, param=param) from None
        if self._kind is not str:
            _check_range(converted, param, ctx)
        return converted


def _check_range(value: float, param: Any, ctx: Any) -> None:
    least, most = param.min, param.max
    if least is not None and value < least:
        raise typer.BadParameter(f"{value} is too small; at least {least}.", ctx=ctx, param=param)
    if most is not None and value > most:
        raise typer.BadParameter(f"{value} is too large; at most {most}.", ctx=ctx, param=param)
