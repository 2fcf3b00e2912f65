"""Shares, quotas and reservations in a policy file: the names and the shape that they have in the API."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from heliostat.config.load import find_closest_match
from heliostat.errors import Invalid
from heliostat.models import Quota, Reservation
from heliostat.scheduling.quotas import QuotaKey
from heliostat.scheduling.reservation_rules import find_conflict, find_field_problem
from heliostat.simulation.cluster import ReplayCluster

_LEVELS = {"projects": "project", "departments": "department", "users": "user"}
RULE_TABLES = (*_LEVELS, "reservations")
_NO_QUOTA = Quota()
_QUOTAS = ("running_gpus", "gpu_hours_per_month")
_REQUIRED = ("name", "nodes", "starts_at", "ends_at")
_MAX_QUOTA = 1_000_000_000
_YEARS = (1970, 5000)  # of a reservation
_MAX_LISTED_NODES = 8


class PolicyRules(NamedTuple):
    """Shares that are not 1, quotas and reservations."""

    projects: Mapping[str, int]  # shares
    departments: Mapping[str, int]
    quotas: Mapping[QuotaKey, Quota]
    reservations: tuple[Reservation, ...]


def read_rules(path: Path, tables: Mapping[str, object]) -> PolicyRules:
    """`tables`: those of the file that are named in RULE_TABLES."""
    return _RuleReader(path).read(tables)


def check_reservations(name: str, reservations: Sequence[Reservation], cluster: ReplayCluster) -> None:
    """The rules that the API checks; `name` is that of the policy."""
    nodes = {node.name: node for node in cluster.nodes}
    for index, reservation in enumerate(reservations):
        place = f"Policy {name}, reservation {reservation.name}"
        if problem := find_field_problem(reservation, nodes):
            hint = _list_nodes(cluster) if problem[0] == "nodes" else "Change this reservation."
            raise Invalid(f"{place}: {': '.join(problem)}.", hint)
        if conflict := find_conflict(reservation, reservations[:index], nodes):
            node, other = conflict
            raise Invalid(
                f"{place}: node {node.name} is reserved at that time by {other.name}.", "Change time or nodes."
            )


def _list_nodes(cluster: ReplayCluster) -> str:
    names = [node.name for node in cluster.nodes]
    shown = ", ".join(names[:_MAX_LISTED_NODES]) + (", …" if len(names) > _MAX_LISTED_NODES else "")
    return f"The nodes of {cluster.nodes_text}: {shown}."


def invalid_value(path: Path, name: str, value: object, hint: str) -> Invalid:
    return Invalid(f"{path}: {name} = {str(value)[:60]!r} is not valid.", hint)


def unknown_setting(path: Path, prefix: str, name: str, known: Collection[str]) -> Invalid:
    near = find_closest_match(name, known)
    hint = f"Did you mean {prefix}{near}?" if near else f"Known settings: {', '.join(sorted(known))}."
    return Invalid(f"{path}: unknown setting {prefix}{name}.", hint)


@dataclass(frozen=True, slots=True)
class _Account:
    share: int = 1
    quota: Quota = _NO_QUOTA


@dataclass(frozen=True, slots=True)
class _RuleReader:
    path: Path

    def read(self, tables: Mapping[str, object]) -> PolicyRules:
        accounts = {table: self._accounts(table, tables.get(table, {})) for table in _LEVELS}
        shares = {
            table: {name: account.share for name, account in accounts[table].items() if account.share != 1}
            for table in _LEVELS
        }
        quotas = {
            (level, name): account.quota
            for table, level in _LEVELS.items()
            for name, account in accounts[table].items()
            if account.quota != _NO_QUOTA
        }
        reservations = self._reservations(tables.get("reservations", []))
        return PolicyRules(shares["projects"], shares["departments"], quotas, reservations)

    def _accounts(self, table: str, values: object) -> dict[str, _Account]:
        if not isinstance(values, dict):
            raise invalid_value(self.path, table, values, f"Write a table: [{table}], and below it name = share.")
        return {name: self._account(table, f"{table}.{name}", value) for name, value in values.items()}

    def _account(self, table: str, place: str, value: object) -> _Account:
        """`vision = 2` or `vision = { share = 2, quota = { running_gpus = 8 } }`. Users have no share."""
        has_share = table != "users"
        if not isinstance(value, dict):
            if not has_share:
                hint = f"Write a quota: [{place}], and below it quota = {{ running_gpus = 4 }}."
                raise invalid_value(self.path, place, value, hint)
            return _Account(self._share(place, value))
        self._check_names(f"{place}.", value, ("share", "quota") if has_share else ("quota",))
        share = self._share(f"{place}.share", value.get("share", 1))
        return _Account(share, self._quota(f"{place}.quota", value.get("quota", {})))

    def _share(self, place: str, value: object) -> int:
        return self._whole_number(place, value, 1, "A share is a whole number of at least 1.")

    def _quota(self, place: str, values: object) -> Quota:
        if not isinstance(values, dict):
            raise invalid_value(self.path, place, values, "Write a table: quota = { running_gpus = 8 }.")
        if "queued_gpus" in values:
            hint = "It refuses submissions, and a replay submits every job. Remove it."
            raise Invalid(f"{self.path}: {place}.queued_gpus has no effect in a replay.", hint)
        self._check_names(f"{place}.", values, _QUOTAS)
        hint = "A quota is a whole number of at least 0."
        return Quota(**{name: self._whole_number(f"{place}.{name}", n, 0, hint) for name, n in values.items()})

    def _reservations(self, values: object) -> tuple[Reservation, ...]:
        if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
            hint = f"Write [[reservations]] for each, and below it {', '.join(_REQUIRED)}."
            raise invalid_value(self.path, "reservations", values, hint)
        reservations = tuple(self._reservation(number, value) for number, value in enumerate(values, 1))
        names = [reservation.name for reservation in reservations]
        for name in names:
            if names.count(name) > 1:
                raise Invalid(f"{self.path}: two reservations are named {name}.", "Rename one.")
        return reservations

    def _reservation(self, number: int, values: Mapping[str, Any]) -> Reservation:
        place = f"reservations[{number}]."
        readers: Mapping[str, Callable[[str, object], Any]] = {
            "name": self._text,
            "nodes": self._texts,
            "starts_at": self._time,
            "ends_at": self._time,
            "project": self._text,
            "gpus_per_node": lambda name, value: self._whole_number(name, value, 1, "Write a number of GPUs."),
            "weeks": lambda name, value: self._whole_number(name, value, 1, "Write a number of weeks."),
            "reason": self._text,
        }
        self._check_names(place, values, tuple(readers))
        for name in _REQUIRED:
            if name not in values:
                raise Invalid(f"{self.path}: {place}{name} is missing.", f"Required: {', '.join(_REQUIRED)}.")
        return Reservation(**{name: readers[name](f"{place}{name}", value) for name, value in values.items()})

    def _check_names(self, prefix: str, values: Mapping[str, object], known: Collection[str]) -> None:
        for name in values:
            if name not in known:
                raise unknown_setting(self.path, prefix, name, known)

    def _whole_number(self, place: str, value: object, least: int, hint: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MAX_QUOTA:
            raise invalid_value(self.path, place, value, hint)
        return value

    def _text(self, place: str, value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise invalid_value(self.path, place, value, "Write text in quotes.")
        return value.strip()

    def _texts(self, place: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, list):
            raise invalid_value(self.path, place, value, 'Write a list: ["gpu-01", "gpu-02"].')
        return tuple(self._text(place, item) for item in value)

    def _time(self, place: str, value: object) -> datetime:
        """In UTC, unless it has a zone."""
        if not isinstance(value, datetime) or not _YEARS[0] <= value.year <= _YEARS[1]:
            raise invalid_value(
                self.path, place, value, "Write a date with a time, not quoted: 2026-10-05T09:00:00Z."
            )
        return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
