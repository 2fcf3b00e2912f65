"""Generates the settings page: `python -m heliostat.config.reference > docs/settings.md`."""

from collections.abc import Iterator
from dataclasses import Field
from typing import Any

from heliostat.config.effective_settings import default_value
from heliostat.config.setting_rules import describe_range, format_toml, rules_of_setting
from heliostat.config.settings import SECTIONS, section_fields

_HEAD = """# Settings

This page is generated: `python -m heliostat.config.reference > docs/settings.md`.

The settings file is `cluster.toml` in `HELIOSTAT_HOME`. All sections are optional. The server reads the file when
it starts; it does not start if a name, type or value is wrong. Options of `helio up` override the file.

```toml
[server]
host = "0.0.0.0"

[queue]
default_time_limit_seconds = 86400
gpu_charges = { a100 = 2.0, t4 = 0.5 }
```

- `helio config check FILE` checks a file before it is used.
- `helio config show` shows every value and its origin.
- `helio config explain containers.keep_days` explains a setting.
"""


def render_settings_page() -> str:
    return "\n".join([_HEAD, *(_section(name) for name in SECTIONS)])


def _section(name: str) -> str:
    rows = "".join(f"{_row(setting_field)}\n" for setting_field in section_fields(name).values())
    head = "| setting | default | meaning |\n|---|---|---|\n"
    return f"## [{name}]\n\n{SECTIONS[name].__doc__}\n\n{head}{rows}"


def _row(setting_field: "Field[Any]") -> str:
    default = format_toml(default_value(setting_field))
    shown = f"`{default}`" if default else "not set"
    return f"| `{setting_field.name}` | {shown} | {'. '.join(_meaning(setting_field))} |"


def _meaning(setting_field: "Field[Any]") -> Iterator[str]:
    rule = rules_of_setting(setting_field)
    yield rule.help
    if words := describe_range(setting_field):
        yield f"{words[0].upper()}{words[1:]}"
    if rule.example:
        yield f"Example: `{rule.example}`"
    if rule.see:
        yield f"[More]({rule.see})"


if __name__ == "__main__":
    print(render_settings_page(), end="")
