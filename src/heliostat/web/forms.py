"""Form values and validation errors: a rejected form is shown again with its input."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from heliostat.errors import HeliostatError, Invalid
from heliostat.web.request_context import SubmittedForm

MAX_LINE_CHARACTERS = 128
_MAX_VALUE_CHARACTERS = 20_000
_MAX_DIGITS = 12


@dataclass(frozen=True, slots=True)
class FormState:
    """Values and errors of a form: the current values, or the rejected input."""

    values: Mapping[str, str] = field(default_factory=dict)
    field_errors: Mapping[str, str] = field(default_factory=dict)
    form_error: str = ""  # an error that belongs to no field
    hint: str = ""
    status: int = 200

    def value(self, name: str) -> str:
        return self.values.get(name, "")

    def error(self, name: str) -> str:
        return self.field_errors.get(name, "")


def form_with_errors(
    form: SubmittedForm, error: HeliostatError, before: Mapping[str, str], field_name: str = ""
) -> FormState:
    """The submitted form again. An error without a known field is shown at `field_name`, or above the form."""
    submitted = {name: values[0][:_MAX_VALUE_CHARACTERS] for name, values in form.fields.items() if values}
    known = {name: what for name, what in error.fields.items() if name in submitted or name in before}
    if not known and field_name:
        known = {field_name: error.message}
    problem, hint = ("", "") if known else (error.message, error.hint or "")
    return FormState({**before, **submitted}, known, problem, hint, error.status)


class FormReader:
    """Reads fields of a form one by one; `raise_if_invalid` reports all errors together."""

    def __init__(self, form: SubmittedForm) -> None:
        self._form = form
        self._errors: dict[str, str] = {}

    def read_integer(self, name: str, minimum: int, maximum: int) -> int | None:
        """None: the field is empty."""
        text = self._form.get(name)
        if not text:
            return None
        is_number = text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
        if is_number and minimum <= int(text) <= maximum:
            return int(text)
        self._errors[name] = f"must be a whole number from {minimum} to {maximum:,}"
        return None

    def read_line(self, name: str, required: bool = False) -> str:
        text = self._form.get(name)
        if required and not text:
            self._errors[name] = "must not be empty"
        elif len(text) > MAX_LINE_CHARACTERS:
            self._errors[name] = f"must have at most {MAX_LINE_CHARACTERS} characters"
        elif not text.isprintable():
            self._errors[name] = "must be one line of printable characters"
        return text

    def read_time(self, name: str, zone: str) -> datetime:
        """A local date and time in that time zone."""
        try:
            local = datetime.fromisoformat(self._form.get(name))
            aware = local.replace(tzinfo=ZoneInfo(zone)) if local.tzinfo is None else local
            at = aware.astimezone(UTC)
        except (ValueError, OverflowError):
            self._errors[name] = "must be a date and time, for example 2026-12-03T09:00"
            return datetime.max.replace(tzinfo=UTC)
        if local.tzinfo is None and at.astimezone(ZoneInfo(zone)).replace(tzinfo=None) != local:
            self._errors[name] = "does not exist: the clock change to summer time skips it"
        return at

    def add_error(self, name: str, message: str) -> None:
        """Only if the field has no error yet."""
        self._errors.setdefault(name, message)

    def raise_if_invalid(self) -> None:
        if self._errors:
            raise Invalid(
                "Some fields are invalid.", "Correct them and submit the form again.", fields=self._errors
            )
