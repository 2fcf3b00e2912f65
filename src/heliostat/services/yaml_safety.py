"""Looks over YAML from anybody before it is read: a few characters may stand for hours or gigabytes. Pure."""

from typing import Any

import yaml

_DEEPEST = 50  # levels; what reads them calls itself for each, and takes the square of their number in time
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def find_yaml_problem(text: str) -> str | None:
    """Why it must not be read. None: it may, or it is no YAML at all, which whoever reads it tells better."""
    depth = 0
    try:
        for event in yaml.parse(text, _PARSER):
            if isinstance(event, yaml.AliasEvent):
                return "refers to parts of itself"
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > _DEEPEST:
                    return "is nested too deeply"
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except (yaml.YAMLError, ValueError):
        return None
    return None
