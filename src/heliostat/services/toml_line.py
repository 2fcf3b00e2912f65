"""Changes one setting in the text of a TOML file and leaves everything else as it is. Pure."""

import re
import tomllib

from heliostat.errors import Invalid

_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


def with_setting(text: str, name: str, value: str) -> str:
    """Comments, order and line ends stay. Raises Invalid where it cannot be done without harm."""
    table = _TABLE.search(text)
    top, rest = (text, "") if table is None else (text[: table.start()], text[table.start() :])
    line = re.compile(rf"^([ \t]*{re.escape(name)}[ \t]*=[ \t]*)(\"[^\"\n]*\"|'[^'\n]*')", re.MULTILINE)
    changed, count = line.subn(lambda found: f'{found[1]}"{value}"', top, count=1)
    if not count:
        end = "\r\n" if "\r\n" in text else "\n"
        changed = f'{name} = "{value}"{end}{top}'
    changed += rest
    if _values(changed) != (_values(text) or {}) | {name: value}:
        raise Invalid(
            f"cluster.toml: {name} cannot be set there safely.", f'Write {name} = "{value}" into it yourself.'
        )
    return changed


def _values(text: str) -> dict[str, object] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
