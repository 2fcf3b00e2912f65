"""What the form asks for, made from the table of job fields."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from heliostat.models.job_fields import JOB_FIELDS, JobField
from heliostat.models.job_fields import FieldKind as JobFieldKind

InputKind = Literal[
    "line", "text", "whole", "number", "seconds", "choice", "flag", "labels", "lines", "variables", "software"
]
"""How it is typed and read: `texts` has what reads and writes each."""
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
    name: str  # as the API has it
    label: str
    kind: InputKind = "line"
    hint: str = ""
    placeholder: str = ""
    options: ChoiceOptions = ()  # of a choice; those that depend on the cluster come with the page
    default: str = ""
    affects_start: bool = False  # it makes a difference to when the job starts
    is_wide: bool = False


@dataclass(frozen=True, slots=True)
class FieldGroup:
    title: str
    fields: tuple[FormField, ...]


_COMMAND_KIND = FormField(
    "command_kind",
    "The command is",
    "choice",
    options=(("shell", "a line for the shell"), ("words", "words, without a shell")),
    default="shell",
)


def group_fields(fields: Iterable[JobField]) -> tuple[FieldGroup, ...]:
    """The first is what most people need. Nobody types with which code a job is submitted: clients say that."""
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
    """Without a default, the first is to leave it out."""
    unset = [("", field.default_text)] if field.choices and field.default is None else []
    return (*unset, *((value, f"{value}: {words}" if words else value) for value, words in field.choices))


FIELD_GROUPS = group_fields(JOB_FIELDS)
FORM_FIELDS = {field.name: field for group in FIELD_GROUPS for field in group.fields}
DEFAULT_TEXTS = {name: field.default for name, field in FORM_FIELDS.items()}
