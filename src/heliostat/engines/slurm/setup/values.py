"""One table of a TOML file, read value by value; what is not as it should be is refused with its place."""

from collections.abc import ItemsView
from typing import Any

from heliostat.errors import Invalid

_MISSING = object()


class Table:
    def __init__(self, values: dict[str, Any], what: str) -> None:
        self._values, self.what = values, what

    def called(self, what: str) -> "Table":
        return Table(self._values, what)

    def only(self, *keys: str) -> None:
        if unknown := sorted(set(self._values) - set(keys)):
            raise Invalid(f"{self.what}: unknown: {', '.join(unknown)}.", f"Known are: {', '.join(keys)}.")

    def items(self) -> ItemsView[str, Any]:
        return self._values.items()

    def value(self, key: str, default: Any = _MISSING) -> Any:
        found = self._values.get(key, default)
        if found is _MISSING:
            raise Invalid(f"{self.what}: {key} is missing.", f"Write {key} = …; docs/admins.md has an example.")
        return found

    def text(self, key: str, default: Any = _MISSING) -> str:
        return str(self._as(str, key, default, "a text in quotes"))

    def texts(self, key: str) -> list[str]:
        found = self._as(list, key, [], "a list of texts")
        if not all(isinstance(one, str) for one in found):
            raise Invalid(f"{self.what}: {key} is not a list of texts.", f'Write {key} = ["…"].')
        return list(found)

    def flag(self, key: str) -> bool:
        return bool(self._as(bool, key, False, "true or false"))

    def number(self, key: str, default: Any = _MISSING, most: int = 1_000_000) -> int:
        found = self._as(int, key, default, "a whole number")
        if isinstance(found, bool) or not 1 <= found <= most:
            raise Invalid(f"{self.what}: {key} is {found}.", f"It must be a whole number from 1 to {most}.")
        return int(found)

    def table(self, key: str) -> "Table":
        return Table(self._as(dict, key, {}, "a table"), f"{self.what}: {key}")

    def tables(self, key: str) -> list["Table"]:
        found = self._as(list, key, [], f"written as [[{key}]]")
        if not all(isinstance(one, dict) for one in found):
            raise Invalid(f"{self.what}: {key} is not a list of tables.", f"Write [[{key}]] before each.")
        return [Table(one, key) for one in found]

    def _as(self, kind: type, key: str, default: Any, words: str) -> Any:
        found = self.value(key, default)
        if not isinstance(found, kind):
            raise Invalid(f"{self.what}: {key} is {found!r}.", f"It must be {words}.")
        return found
