"""Value, origin and explanation of each setting. Secrets are hidden."""

from dataclasses import Field, dataclass
from typing import Any

from heliostat.config.load import find_closest_match
from heliostat.config.renamed_settings import REMOVED_SETTINGS, RENAMED_SETTINGS
from heliostat.config.setting_rules import (
    describe_range,
    describe_type,
    format_toml,
    redact_value,
    rules_of_setting,
)
from heliostat.config.settings import SECTIONS, Settings, section_fields
from heliostat.errors import Invalid, NotFound


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    section: str
    name: str
    value: Any  # None: not set
    default: Any
    source: str  # default, cluster.toml, command line; "at the start": set by a program

    @property
    def key(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def is_set(self) -> bool:
        return self.source != "default"

    @property
    def value_text(self) -> str:
        """As written in the file; empty: not set."""
        return format_toml(self.value)

    @property
    def default_text(self) -> str:
        return format_toml(self.default)


def effective_settings(settings: Settings) -> list[EffectiveSetting]:
    """In the order of the sections."""
    return [
        _effective(section, name, settings, getattr(record(), name))
        for section, record in SECTIONS.items()
        for name in section_fields(section)
    ]


def _effective(section: str, name: str, settings: Settings, default: object) -> EffectiveSetting:
    value = getattr(getattr(settings, section), name)
    source = settings.sources.get(f"{section}.{name}", "default" if value == default else "at the start")
    return EffectiveSetting(section, name, redact_value(name, value), default, source)


@dataclass(frozen=True, slots=True)
class SettingExplanation:
    section: str
    name: str
    help: str
    type: str
    values: str  # empty: all values of this type
    default: str  # as written in the file; empty: not set
    example: str
    see: str  # page and heading of the documentation


def explain_setting(text: str) -> SettingExplanation:
    """`containers.keep_days`, or `keep_days` if it is unique. Raises NotFound, Invalid."""
    section, setting_field = _find(text)
    rule = rules_of_setting(setting_field)
    return SettingExplanation(
        section=section,
        name=setting_field.name,
        help=f"{rule.help[0].upper()}{rule.help[1:]}.".replace("`", ""),
        type=describe_type(setting_field),
        values=describe_range(setting_field),
        default=format_toml(default_value(setting_field)),
        example=rule.example,
        see=rule.see,
    )


def default_value(setting_field: "Field[Any]") -> Any:
    return setting_field.default_factory() if callable(setting_field.default_factory) else setting_field.default


def _find(text: str) -> tuple[str, "Field[Any]"]:
    known = {
        f"{section}.{name}": (section, setting_field)
        for section in SECTIONS
        for name, setting_field in section_fields(section).items()
    }
    keys = [text] if text in known else [key for key in known if key.endswith(f".{text}")]
    if len(keys) == 1:
        return known[keys[0]]
    if keys:
        raise Invalid(f"Setting {text} exists in {len(keys)} sections.", f"Choose one of: {', '.join(keys)}.")
    raise NotFound(f"There is no setting {text!r}.", _advice(text, list(known)))


def _advice(text: str, keys: list[str]) -> str:
    if text in REMOVED_SETTINGS:
        return REMOVED_SETTINGS[text]
    if text in RENAMED_SETTINGS:
        return f"It is now {RENAMED_SETTINGS[text]}."
    near = find_closest_match(text, [*keys, *(key.partition(".")[2] for key in keys), *RENAMED_SETTINGS])
    if near is None:
        return "`helio config show` lists all settings."
    matches = [key for key in keys if key == RENAMED_SETTINGS.get(near, near) or key.endswith(f".{near}")]
    return f"Did you mean {' or '.join(matches)}?"
