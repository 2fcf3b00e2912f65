"""Checks of untrusted YAML before parsing: aliases and deep nesting can use up time and memory."""

from typing import Any

import yaml

_MAX_DEPTH = 50  # levels; the parser recurses for each, in quadratic time
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def find_yaml_problem(text: str) -> str | None:
    """Why it must not be parsed; None: it may, or it is not YAML, which the parser reports."""
    depth = 0
    try:
        for event in yaml.parse(text, _PARSER):
            if isinstance(event, yaml.AliasEvent):
                return "refers to parts of itself"
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > _MAX_DEPTH:
                    return "is nested too deeply"
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except (yaml.YAMLError, ValueError):
        return None
    return None
