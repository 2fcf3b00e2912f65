"""Conversion of dataclasses to JSON and back, by their type hints. Missing fields get their default."""

import json
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def dataclass_to_text(record: Any) -> str:
    return json.dumps(_plain(record))


def text_to_dataclass(kind: type[T], text: str) -> T:
    record: T = _read(kind, json.loads(text))
    return record


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return {"time": value.isoformat()}
    if isinstance(value, timedelta):
        return {"seconds": value.total_seconds()}
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list | frozenset) else value


def _read(kind: Any, value: Any) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return None if value is None else _read_union(get_args(kind), value)
    if origin is tuple:
        kinds = get_args(kind)
        each = kinds[:1] * len(value) if kinds[-1] is Ellipsis else kinds
        return tuple(_read(item_kind, item) for item_kind, item in zip(each, value, strict=True))
    if is_dataclass(kind) and isinstance(kind, type):
        hints = _hints(kind)
        return kind(**{name: _read(hints[name], item) for name, item in value.items() if name in hints})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is datetime:
        return datetime.fromisoformat(value["time"])
    return timedelta(seconds=value["seconds"]) if kind is timedelta else value


def _read_union(kinds: tuple[Any, ...], value: Any) -> Any:
    """As the first type that matches the value."""
    others = [kind for kind in kinds if kind is not type(None)]
    return _read(next((kind for kind in others if _matches(kind, value)), others[0]), value)


def _matches(kind: Any, value: Any) -> bool:
    marks = {datetime: ["time"], timedelta: ["seconds"]}
    if kind in marks:
        return isinstance(value, dict) and list(value) == marks[kind]
    if is_dataclass(kind):
        return isinstance(value, dict)
    if get_origin(kind) is tuple:
        return isinstance(value, list)
    return not isinstance(kind, type) or isinstance(value, kind) or (kind is float and isinstance(value, int))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
