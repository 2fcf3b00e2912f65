"""Scheduling policies to compare: presets by name, or TOML files."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from heliostat.config.load import read_section
from heliostat.config.settings import SECTIONS
from heliostat.errors import Invalid
from heliostat.models import Quota, Reservation
from heliostat.scheduling.policy import DEFAULT_PRIORITY_CLASSES, POLICY_PRESETS, PriorityClass, SchedulingPolicy
from heliostat.scheduling.quotas import QuotaKey
from heliostat.scheduling_settings import policy_from_settings
from heliostat.simulation.policy_rules import RULE_TABLES, invalid_value, read_rules, unknown_setting

T = TypeVar("T")
_MAX_AMOUNT = 1e12
_ABOVE_ZERO = ("half_life_seconds",)
_TABLES = ("preset", "classes", "charges", *RULE_TABLES)


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy with its name, the shares of projects and departments that are not 1, quotas and reservations."""

    name: str
    policy: SchedulingPolicy
    projects: Mapping[str, int] = field(default_factory=dict)
    departments: Mapping[str, int] = field(default_factory=dict)
    quotas: Mapping[QuotaKey, Quota] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()


def read_policies(texts: Iterable[str]) -> list[NamedPolicy]:
    """Each text is a preset or the path of a TOML file. Duplicate names are read once."""
    policies = [read_policy(text.strip()) for text in texts]
    return list({named.name: named for named in policies}.values())


def read_policy(text: str) -> NamedPolicy:
    if text in POLICY_PRESETS:
        # The classes as a dict, because a mapping proxy cannot be pickled for other processes.
        return NamedPolicy(text, replace(POLICY_PRESETS[text], classes=dict(DEFAULT_PRIORITY_CLASSES)))
    path = Path(text)
    if not path.is_file():
        raise Invalid(
            f"Policy {text!r} does not exist.", f"Use {', '.join(POLICY_PRESETS)}, or the path of a TOML file."
        )
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is not valid TOML: {error}.", "Fix that line.") from error
    return _Reader(path).of_settings(values) if values.keys() & SECTIONS else _Reader(path).named(values)


@dataclass(frozen=True, slots=True)
class _Reader:
    path: Path

    def of_settings(self, values: Mapping[str, Any]) -> NamedPolicy:
        """A `cluster.toml`, of which the section [queue] counts; shares, quotas and reservations may be added."""
        for name in values.keys() - {*SECTIONS, *RULE_TABLES}:
            raise unknown_setting(self.path, "", name, (*SECTIONS, *RULE_TABLES))
        policy = policy_from_settings(read_section(self.path, "queue", values))
        policy = replace(policy, classes=dict(policy.classes))
        return NamedPolicy(self.path.stem, policy, *read_rules(self.path, values))

    def named(self, values: Mapping[str, Any]) -> NamedPolicy:
        """`preset` names the policy that the file changes; default: fairshare."""
        rest = {name: value for name, value in values.items() if name not in RULE_TABLES}
        start = rest.pop("preset", "fairshare")
        if start not in POLICY_PRESETS:
            raise invalid_value(self.path, "preset", start, f"Presets are {', '.join(POLICY_PRESETS)}.")
        classes = self._classes(rest.pop("classes", {}))
        charges = self._with_changes(POLICY_PRESETS[start].charges, rest.pop("charges", {}), "charges.")
        policy = self._with_changes(POLICY_PRESETS[start], rest, "")
        policy = replace(policy, classes=classes, charges=charges)
        return NamedPolicy(self.path.stem, policy, *read_rules(self.path, values))

    def _classes(self, tables: object) -> dict[str, PriorityClass]:
        """`[classes.urgent]`: changes to a default class, or a new class."""
        if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
            raise invalid_value(self.path, "classes", tables, "Write one table per class: [classes.urgent].")
        classes = dict(DEFAULT_PRIORITY_CLASSES)
        for name, table in tables.items():
            start = classes.get(name) or PriorityClass(name, rank=1)
            classes[name] = self._with_changes(start, table, f"classes.{name}.")
        return classes

    def _with_changes(self, start: T, values: object, prefix: str) -> T:
        if not isinstance(values, dict):
            raise invalid_value(self.path, prefix.rstrip("."), values, "Write a table.")
        names = {field_info.name for field_info in fields(start)}  # type: ignore[arg-type]
        changeable = names - {"name", "classes", "charges"}
        changes: dict[str, object] = {}
        for name, value in values.items():
            if name not in changeable:
                known = changeable if prefix else changeable | set(_TABLES)
                raise unknown_setting(self.path, prefix, name, known)
            changes[name] = self._checked(f"{prefix}{name}", value, getattr(start, name))
        return replace(start, **changes)  # type: ignore[type-var]

    def _checked(self, name: str, value: object, default: object) -> object:
        """The value, checked to be of the same type as the default."""
        if isinstance(default, Enum):
            kinds = [item.value for item in type(default)]
            if value not in kinds:
                raise invalid_value(self.path, name, value, f"Use one of {', '.join(kinds)}.")
            return type(default)(value)
        if isinstance(default, Mapping):
            if not isinstance(value, dict) or not all(_is_amount(item) for item in value.values()):
                raise invalid_value(self.path, name, value, "Write a table of numbers.")
            return {key.lower(): float(item) for key, item in value.items()}
        if isinstance(default, bool) or isinstance(value, bool):
            if not (isinstance(default, bool) and isinstance(value, bool)):
                raise invalid_value(self.path, name, value, f"The default is {default!r}.")
            return value
        if not _is_amount(value) or (isinstance(default, int) and not isinstance(value, int)):
            raise invalid_value(self.path, name, value, f"Use a number of at least 0; the default is {default!r}.")
        if name in _ABOVE_ZERO and value == 0:
            raise invalid_value(self.path, name, value, f"Use a number above 0; the default is {default!r}.")
        return value


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_AMOUNT
