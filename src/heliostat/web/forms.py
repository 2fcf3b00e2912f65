"""Forms that come back: what was typed stays, and what is wrong stands beside its field."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from heliostat.errors import HeliostatError, Invalid
from heliostat.web.request_context import SubmittedForm

MAX_LINE_CHARACTERS = 128
_LONGEST_KEPT = 20_000
_LONGEST_NUMBER = 12


@dataclass(frozen=True, slots=True)
class FormState:
    """What a form shows: what holds now, or what was typed last and what is wrong with it."""

    values: Mapping[str, str] = field(default_factory=dict)
    field_errors: Mapping[str, str] = field(default_factory=dict)
    form_error: str = ""  # what belongs to no field
    hint: str = ""
    status: int = 200

    def value(self, name: str) -> str:
        return self.values.get(name, "")

    def error(self, name: str) -> str:
        return self.field_errors.get(name, "")


def form_with_errors(
    form: SubmittedForm, error: HeliostatError, before: Mapping[str, str], field_name: str = ""
) -> FormState:
    """The form once more, as it was sent. What names no field of it is said at `field_name`, or above the form."""
    typed = {name: values[0][:_LONGEST_KEPT] for name, values in form.fields.items() if values}
    known = {name: what for name, what in error.fields.items() if name in typed or name in before}
    if not known and field_name:
        known = {field_name: error.message}
    problem, hint = ("", "") if known else (error.message, error.hint or "")
    return FormState({**before, **typed}, known, problem, hint, error.status)


class FormReader:
    """Takes fields out of a form one by one; `check` says everything that was wrong at once."""

    def __init__(self, form: SubmittedForm) -> None:
        self._form = form
        self._wrong: dict[str, str] = {}

    def read_integer(self, name: str, least: int, most: int) -> int | None:
        """None: left empty."""
        text = self._form.get(name)
        if not text:
            return None
        is_number = text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER
        if is_number and least <= int(text) <= most:
            return int(text)
        self._wrong[name] = f"must be a whole number from {least} to {most:,}"
        return None

    def read_line(self, name: str, needed: bool = False) -> str:
        text = self._form.get(name)
        if needed and not text:
            self._wrong[name] = "must not be empty"
        elif len(text) > MAX_LINE_CHARACTERS:
            self._wrong[name] = f"must have at most {MAX_LINE_CHARACTERS} characters"
        elif not text.isprintable():
            self._wrong[name] = "must be one line of visible characters"
        return text

    def read_time(self, name: str, zone: str) -> datetime:
        """Of a date and time as clocks in that zone show it."""
        try:
            local = datetime.fromisoformat(self._form.get(name))
            there = local.replace(tzinfo=ZoneInfo(zone)) if local.tzinfo is None else local
            at = there.astimezone(UTC)
        except (ValueError, OverflowError):
            self._wrong[name] = "must be a date and time: 2026-12-03T09:00"
            return datetime.max.replace(tzinfo=UTC)
        if local.tzinfo is None and at.astimezone(ZoneInfo(zone)).replace(tzinfo=None) != local:
            self._wrong[name] = "does not exist: clocks are put forward over it"
        return at

    def add_error(self, name: str, what: str) -> None:
        """Unless something is known to be wrong with it already."""
        self._wrong.setdefault(name, what)

    def raise_if_invalid(self) -> None:
        if self._wrong:
            raise Invalid("Some fields are not right yet.", "Change those and send it again.", fields=self._wrong)
