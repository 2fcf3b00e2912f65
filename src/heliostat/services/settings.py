"""What is set, as the server has read it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from heliostat.config import Settings
from heliostat.models import Caller
from heliostat.services.context import Context
from heliostat.services.rights import require_admin

_SECRET = re.compile(r"(^|_)(password|secret|key|token|credentials)$")
_LOGIN_IN_ADDRESS = re.compile(r"(?<=://)[^/\s]*@")
HIDDEN = "set, not shown"


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    name: str
    value: str  # as it would be written in cluster.toml; empty: not set
    default: str
    source: str  # default, cluster.toml, command line; at the start: by a program
    is_set: bool


def effective_settings(context: Context, caller: Caller) -> list[EffectiveSetting]:
    """By name. What could be a secret is only said to be there."""
    require_admin(caller.user)
    settings, plain = context.settings, Settings(context.settings.home)
    names = sorted(field.name for field in fields(Settings) if field.name not in ("home", "sources"))
    return [_effective(name, getattr(settings, name), getattr(plain, name), settings.sources) for name in names]


def _effective(name: str, value: object, default: object, sources: Mapping[str, str]) -> EffectiveSetting:
    is_set = name in sources or value != default
    source = sources.get(name, "at the start" if is_set else "default")
    return EffectiveSetting(name, _shown(name, value), _shown(name, default), source, is_set)


def _shown(name: str, value: object) -> str:
    if value is None:
        return ""
    if _SECRET.search(name):
        return HIDDEN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {part}" for key, part in value.items()) + " }" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(f'"{word}"' for word in value) + "]"
    return _LOGIN_IN_ADDRESS.sub("…@", str(value))
