"""Converts values of command-line options to Python types without importing pydantic.

Typer converts with pydantic, whose import takes longer than most commands. Typer parameters create their
converter on first use in `_runtime_param`; this module sets it before. If a later Typer ignores that attribute,
commands still work, but start slower.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, get_args, get_origin

import typer

_CONVERTERS: dict[Any, Callable[[str], Any]] = {str: str, int: int, float: float}
_TYPE_NAMES = {int: "a whole number", float: "a number"}


def install_light_converters(command: Any, parent: Any = None) -> None:
    """For this command and its subcommands."""
    context = typer.Context(command, parent=parent, **command.context_settings)
    for subcommand in getattr(command, "commands", {}).values():
        install_light_converters(subcommand, context)
    for param in (*command.params, command.get_help_option(context)):
        descriptor = getattr(param, "type_descriptor", None)
        annotation = getattr(descriptor, "annotation", None)
        element = get_args(annotation)[0] if get_origin(annotation) is list else annotation
        if element in _CONVERTERS or element is bool or _is_enum(element):
            param._runtime_param = _Converter(element)


class _Converter:
    def __init__(self, value_type: Any) -> None:
        self._type = value_type

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        is_list = param.multiple or param.nargs == -1
        if value is None:
            return () if is_list else None
        if is_list:
            return tuple(self._convert(item, param, ctx) for item in value)
        return self._convert(value, param, ctx)

    def _convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if self._type is bool or not isinstance(value, str):
            return value
        try:
            converted = _CONVERTERS.get(self._type, self._type)(value)
        except ValueError:
            message = f"{value!r} is not {_describe_type(self._type)}."
            raise typer.BadParameter(message, ctx=ctx, param=param) from None
        if self._type in (int, float):
            _check_range(converted, param, ctx)
        return converted


def _is_enum(value_type: Any) -> bool:
    return isinstance(value_type, type) and issubclass(value_type, Enum)


def _describe_type(value_type: Any) -> str:
    return f"one of {', '.join(value_type)}" if _is_enum(value_type) else _TYPE_NAMES[value_type]


def _check_range(value: float, param: Any, ctx: Any) -> None:
    minimum, maximum = param.min, param.max
    if minimum is not None and value < minimum:
        raise typer.BadParameter(f"{value} is too small. It must be at least {minimum}.", ctx=ctx, param=param)
    if maximum is not None and value > maximum:
        raise typer.BadParameter(f"{value} is too large. It must be at most {maximum}.", ctx=ctx, param=param)
