"""The policies to compare: presets by name, or TOML files."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from heliostat.errors import Invalid
from heliostat.scheduling.policy import DEFAULT_PRIORITY_CLASSES, POLICY_PRESETS, PriorityClass, SchedulingPolicy

T = TypeVar("T")
_SHARES = ("projects", "departments")


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy under its name, with the shares of projects and departments that are not 1."""

    name: str
    policy: SchedulingPolicy
    projects: Mapping[str, int] = field(default_factory=dict)
    departments: Mapping[str, int] = field(default_factory=dict)


def read_policies(texts: Iterable[str]) -> list[NamedPolicy]:
    """Each a preset or the path of a TOML file; named alike twice is once."""
    found = [read_policy(text.strip()) for text in texts]
    return list({named.name: named for named in found}.values())


def read_policy(text: str) -> NamedPolicy:
    if text in POLICY_PRESETS:
        return NamedPolicy(
            text, replace(POLICY_PRESETS[text], classes=dict(DEFAULT_PRIORITY_CLASSES))
        )  # that other processes can be sent it
    path = Path(text)
    if not path.is_file():
        raise Invalid(
            f"There is no policy {text!r}.", f"Use {', '.join(POLICY_PRESETS)}, or the path of a TOML file."
        )
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} cannot be read: {error}.", "Mend that line; the format is TOML.") from error
    return _Reader(path).named(values)


@dataclass(frozen=True, slots=True)
class _Reader:
    path: Path

    def named(self, values: Mapping[str, Any]) -> NamedPolicy:
        """`preset` is what the file starts from; without it, the default policy."""
        rest = dict(values)
        start = rest.pop("preset", "fairshare")
        if start not in POLICY_PRESETS:
            raise self._wrong("preset", start, f"Presets are {', '.join(POLICY_PRESETS)}.")
        shares = {kind: self._shares(kind, rest.pop(kind, {})) for kind in _SHARES}
        classes = self._classes(rest.pop("classes", {}))
        charges = self._changed(POLICY_PRESETS[start].charges, rest.pop("charges", {}), "charges.")
        policy = self._changed(POLICY_PRESETS[start], rest, "")
        return NamedPolicy(self.path.stem, replace(policy, classes=classes, charges=charges), **shares)

    def _shares(self, kind: str, table: object) -> dict[str, int]:
        """`[projects]` with `vision = 2`."""
        if not isinstance(table, dict):
            raise self._wrong(kind, table, f"Write a table: [{kind}], and below it name = share.")
        for name, share in table.items():
            if not isinstance(share, int) or isinstance(share, bool) or share < 1:
                raise self._wrong(f"{kind}.{name}", share, "A share is a whole number from 1 up.")
        return table

    def _classes(self, tables: object) -> dict[str, PriorityClass]:
        """`[classes.urgent]`: what differs from the usual classes, or new ones."""
        if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
            raise self._wrong("classes", tables, "Write a table for each: [classes.urgent].")
        made = dict(DEFAULT_PRIORITY_CLASSES)
        for name, table in tables.items():
            start = made.get(name) or PriorityClass(name, rank=1)
            made[name] = self._changed(start, table, f"classes.{name}.")
        return made

    def _changed(self, start: T, values: object, where: str) -> T:
        if not isinstance(values, dict):
            raise self._wrong(where.rstrip("."), values, "Write a table.")
        known = {one.name for one in fields(start) if one.name not in ("name", "classes", "charges")}  # type: ignore[arg-type]
        changes: dict[str, object] = {}
        for name, value in values.items():
            if name not in known:
                raise Invalid(f"{self.path}: there is no {where}{name}.", f"Known: {', '.join(sorted(known))}.")
            changes[name] = self._like(f"{where}{name}", value, getattr(start, name))
        return replace(start, **changes)  # type: ignore[type-var]

    def _like(self, name: str, value: object, default: object) -> object:
        """The value, if it is of the same kind as the default."""
        if isinstance(default, Enum):
            kinds = [one.value for one in type(default)]
            if value not in kinds:
                raise self._wrong(name, value, f"One of {', '.join(kinds)}.")
            return type(default)(value)
        if isinstance(default, Mapping):
            if not isinstance(value, dict) or not all(_is_amount(one) for one in value.values()):
                raise self._wrong(name, value, "Write a table of numbers.")
            return {key.lower(): float(one) for key, one in value.items()}
        if isinstance(default, bool) or isinstance(value, bool):
            if not (isinstance(default, bool) and isinstance(value, bool)):
                raise self._wrong(name, value, f"The default is {default!r}.")
            return value
        if not _is_amount(value) or (isinstance(default, int) and not isinstance(value, int)):
            raise self._wrong(name, value, f"A number from 0 up; the default is {default!r}.")
        return value

    def _wrong(self, name: str, value: object, hint: str) -> Invalid:
        return Invalid(f"{self.path}: {name} = {str(value)[:60]!r} is not possible.", hint)


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
