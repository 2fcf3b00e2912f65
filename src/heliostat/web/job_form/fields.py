"""Fields of the job form, derived from the table of job fields."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from heliostat.models.job_fields import JOB_FIELDS, JobField
from heliostat.models.job_fields import FieldKind as JobFieldKind

InputKind = Literal[
    "line", "text", "whole", "number", "seconds", "choice", "flag", "labels", "lines", "variables", "software"
]
"""Input type of a field; `text_conversion` has a converter for each."""
ChoiceOptions = Sequence[tuple[str, str]]

FORM_ONLY_FIELDS = frozenset({"command_kind"})
_KINDS: dict[JobFieldKind, InputKind] = {
    "command": "text",
    "script": "text",
    "count": "whole",
    "gpus": "number",
    "seconds": "seconds",
    "flag": "flag",
    "labels": "labels",
    "causes": "labels",
    "triggers": "labels",
    "parents": "labels",
    "mounts": "lines",
    "variables": "variables",
    "software": "software",
}
_WIDE = ("text", "lines", "variables", "software")


@dataclass(frozen=True, slots=True)
class FormField:
    name: str  # of the API field
    label: str
    kind: InputKind = "line"
    hint: str = ""
    placeholder: str = ""
    options: ChoiceOptions = ()  # of a choice; options that depend on the cluster are added by the page
    default: str = ""
    affects_start: bool = False  # changes the start time of the job
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class FieldGroup:
    title: str
    fields: tuple[FormField, ...]


_COMMAND_KIND = FormField(
    "command_kind",
    "Command type",
    "choice",
    options=(("shell", "shell line"), ("words", "program and arguments, without a shell")),
    default="shell",
)


def group_fields(fields: Iterable[JobField]) -> tuple[FieldGroup, ...]:
    """Form groups in the order of the table. The field `code` is set by clients, not in the form."""
    groups: dict[str, list[FormField]] = {}
    for field in fields:
        if field.kind == "code":
            continue
        group = groups.setdefault(field.group, [])
        group += [_COMMAND_KIND] if field.kind == "script" else []
        group.append(_field(field))
    return tuple(FieldGroup(title, tuple(group)) for title, group in groups.items())


def _field(field: JobField) -> FormField:
    is_choice = bool(field.choices) or field.name in ("gpu_type", "project")
    kind = "choice" if is_choice else _KINDS.get(field.kind, "line")
    return FormField(
        field.name,
        field.title,
        kind,
        field.form_help or field.help,
        field.example or field.default_text or (str(field.default) if field.kind == "count" else ""),
        _options(field),
        str(field.default) if field.choices and field.default is not None else "",
        field.affects_start,
        kind in _WIDE,
    )


def _options(field: JobField) -> ChoiceOptions:
    """Without a default, the first option leaves the field unset."""
    unset = [("", field.default_text)] if field.choices and field.default is None else []
    return (*unset, *((value, f"{value}: {words}" if words else value) for value, words in field.choices))


FIELD_GROUPS = group_fields(JOB_FIELDS)
FORM_FIELDS = {field.name: field for group in FIELD_GROUPS for field in group.fields}
DEFAULT_TEXTS = {name: field.default for name, field in FORM_FIELDS.items()}
