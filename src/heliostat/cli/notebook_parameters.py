"""Parameters of notebooks as people type them, typed as papermill does."""

import math
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand

from heliostat.models.notebooks import typed_value

_PAIRS = ("-p", "--parameter", "-r", "--raw")


class PairedCommand(TyperCommand):
    """Takes `-p NAME VALUE` as it takes `-p NAME=VALUE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, joined(args))


def joined(words: Sequence[str]) -> list[str]:
    """A name has no `=` in it: what follows it is its value."""
    done: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        done.append(word)
        if word == "--":
            return done + rest
        if word in _PAIRS and len(rest) >= 2 and "=" not in rest[0]:
            done.append(f"{rest.pop(0)}={rest.pop(0)}")
    return done


def parameters_of(typed: Sequence[str], raw: Sequence[str], yaml_texts: Sequence[str]) -> dict[str, Any]:
    """Later ones count: YAML, then typed, then raw."""
    found: dict[str, Any] = {}
    for text in yaml_texts:
        found |= _mapping(text)
    found |= {name: typed_value(value) for name, value in (_pair(text, "-p") for text in typed)}
    return found | dict(_pair(text, "-r") for text in raw)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"Write a name and a value: {option} lr 0.1.", param_hint=option)
    return name, value


def _mapping(text: str) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise typer.BadParameter(f"It is not YAML: {' '.join(str(error).split())}", param_hint="-y") from error
    if not isinstance(found, dict) or not all(isinstance(name, str) and _is_plain(found[name]) for name in found):
        raise typer.BadParameter(
            "Write names with values that JSON knows: {lr: 0.1, layers: [2, 3]}.", param_hint="-y"
        )
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_plain(one) for name, one in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int)
