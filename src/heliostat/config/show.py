"""Settings with their values and where each comes from. What could be a secret is only said to be there."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from heliostat.config.settings import SECTIONS, Settings, settings_of

HIDDEN = "set, not shown"
_SECRET = re.compile(r"(^|_)(password|secret|key|token|credentials)$")
_LOGIN_IN_ADDRESS = re.compile(r"(?<=://)[^/\s]*@")


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    section: str
    name: str
    value: str  # as it is written in cluster.toml; empty: not set
    default: str
    source: str  # default, cluster.toml, command line; at the start: by a program
    is_set: bool

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}"


def effective_settings(settings: Settings) -> list[EffectiveSetting]:
    """In the order of the sections."""
    return [
        _effective(section, name, settings, getattr(record(), name))
        for section, record in SECTIONS.items()
        for name in settings_of(section)
    ]


def _effective(section: str, name: str, settings: Settings, default: object) -> EffectiveSetting:
    value = getattr(getattr(settings, section), name)
    key = f"{section}.{name}"
    is_set = key in settings.sources or value != default
    source = settings.sources.get(key, "at the start" if is_set else "default")
    return EffectiveSetting(section, name, shown(name, value), shown(name, default), source, is_set)


def shown(name: str, value: object) -> str:
    """As it is written in the file, without secrets; empty for what is not set."""
    if value is None:
        return ""
    return HIDDEN if _SECRET.search(name) else _LOGIN_IN_ADDRESS.sub("…@", in_toml(value))


def in_toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {in_toml(part)}' for key, part in value.items())} }}" if value else "{}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(in_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
