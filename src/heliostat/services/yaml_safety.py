"""Checks of untrusted YAML before parsing: aliases and deep nesting can use up time and memory, and of two
equal keys one is lost."""

from collections.abc import Iterable
from typing import Any

import yaml

_MAX_DEPTH = 50  # levels; the parser recurses for each, in quadratic time
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def find_yaml_problem(text: str) -> str | None:
    """Why it must not be parsed; None: it may, or it is not YAML, which the parser reports."""
    try:
        return _find_problem(yaml.parse(text, _PARSER))
    except (yaml.YAMLError, ValueError):
        return None


def _find_problem(events: Iterable[Any]) -> str | None:
    open_collections: list[_Collection] = []
    event: Any
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            return "refers to parts of itself"
        if isinstance(event, yaml.CollectionEndEvent):
            open_collections.pop()
        elif isinstance(event, yaml.NodeEvent):
            if open_collections and open_collections[-1].is_repeated_key(event):
                position: Any = event.start_mark
                return f"has a duplicate key in line {position.line + 1}"
            if isinstance(event, yaml.CollectionStartEvent):
                open_collections.append(_Collection(isinstance(event, yaml.MappingStartEvent)))
        if len(open_collections) > _MAX_DEPTH:
            return "is nested too deeply"
    return None


class _Collection:
    def __init__(self, is_mapping: bool) -> None:
        self._is_mapping, self._keys, self._nodes = is_mapping, set[str](), 0

    def is_repeated_key(self, node: Any) -> bool:
        """Of two keys that are written alike, YAML keeps the last."""
        self._nodes += 1
        if not (self._is_mapping and self._nodes % 2 and isinstance(node, yaml.ScalarEvent)):
            return False
        is_repeated = node.value in self._keys
        self._keys.add(node.value)
        return is_repeated
