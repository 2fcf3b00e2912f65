"""Changes one setting in the text of `cluster.toml` and keeps the rest unchanged. Pure."""

import re
import tomllib
from typing import Any

from heliostat.errors import Invalid

_HEADER = re.compile(r"^[ \t]*\[", re.MULTILINE)


def replace_setting(text: str, section: str, name: str, value: str) -> str:
    """Keeps comments, order and line ends. Raises Invalid if the file cannot be changed safely."""
    written = _values(text) or {}
    expected = {**written, section: {**_table(written, section), name: value}}
    for changed in _candidates(text, section, name, value):
        if _values(changed) == expected:
            return changed
    raise Invalid(
        f"{name} in [{section}] of cluster.toml cannot be changed automatically.",
        f'Edit the file: write {name} = "{value}" below a line [{section}].',
    )


def _candidates(text: str, section: str, name: str, value: str) -> list[str]:
    """Below the section's header, as a dotted key before all headers, or in a section of its own at the end."""
    end = "\r\n" if "\r\n" in text else "\n"
    header = re.search(rf"^[ \t]*\[[ \t]*{section}[ \t]*\][ \t]*(#[^\n]*)?(\r?\n|\Z)", text, re.MULTILINE)
    first = _HEADER.search(text)
    top = 0, first.start() if first else len(text)
    body = _body(text, header.end()) if header else top
    line, dotted = f'{name} = "{value}"{end}', f'{section}.{name} = "{value}"{end}'
    gap = "" if not text or text.endswith("\n") else end
    return [
        _replaced(text, body, name, value),
        _replaced(text, top, rf"{section}[ \t]*\.[ \t]*{name}", value),
        *([text[: header.end()] + ("" if header[2] else end) + line + text[header.end() :]] if header else []),
        f"{text}{gap}[{section}]{end}{line}",
        dotted + text,
    ]


def _body(text: str, start: int) -> tuple[int, int]:
    following = _HEADER.search(text, start)
    return start, following.start() if following else len(text)


def _replaced(text: str, span: tuple[int, int], pattern: str, value: str) -> str:
    """With another value in the line of this key, if the span has one."""
    start, end = span
    line = re.compile(rf"^([ \t]*{pattern}[ \t]*=[ \t]*)(\"[^\"\n]*\"|'[^'\n]*')", re.MULTILINE)
    return text[:start] + line.sub(lambda match: f'{match[1]}"{value}"', text[start:end], count=1) + text[end:]


def _table(written: dict[str, Any], section: str) -> dict[str, Any]:
    table = written.get(section, {})
    return table if isinstance(table, dict) else {}


def _values(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
