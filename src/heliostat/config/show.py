"""Settings with their values and where each comes from. What could be a secret is only said to be there."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heliostat.config.settings import SECTIONS, Settings, settings_of

HIDDEN = "set, not shown"
_SECRET = re.compile(r"(^|_)(password|secret|key|token|credentials)$")
_LOGIN_IN_ADDRESS = re.compile(r"(?<=://)[^/\s]*@")


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    section: str
    name: str
    value: Any  # None: not set
    default: Any
    source: str  # default, cluster.toml, command line; at the start: by a program

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def is_set(self) -> bool:
        return self.source != "default"

    @property
    def value_text(self) -> str:
        """As it is written in the file; empty for what is not set."""
        return in_toml(self.value)

    @property
    def default_text(self) -> str:
        return in_toml(self.default)


def effective_settings(settings: Settings) -> list[EffectiveSetting]:
    """In the order of the sections."""
    return [
        _effective(section, name, settings, getattr(record(), name))
        for section, record in SECTIONS.items()
        for name in settings_of(section)
    ]


def _effective(section: str, name: str, settings: Settings, default: object) -> EffectiveSetting:
    value = getattr(getattr(settings, section), name)
    source = settings.sources.get(f"{section}.{name}", "default" if value == default else "at the start")
    return EffectiveSetting(section, name, public(name, value), default, source)


def public(name: str, value: Any) -> Any:
    """Without secrets, and without logins within addresses."""
    if value is None:
        return None
    if _SECRET.search(name):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: public(key.lower(), part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return tuple(public("", part) for part in value)
    return _LOGIN_IN_ADDRESS.sub("…@", value) if isinstance(value, str) else value


def in_toml(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        pairs = (f"{_key(key)} = {in_toml(part)}" for key, part in value.items())
        return f"{{ {', '.join(pairs)} }}" if value else "{}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(in_toml, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else str(value)


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else json.dumps(text, ensure_ascii=False)
