from datetime import UTC, datetime

import pytest

from heliostat.errors import Conflict, Invalid
from heliostat.web.forms import FormReader, form_with_errors
from heliostat.web.request_context import SubmittedForm

BERLIN = "Europe/Berlin"


def a_form(**fields: str) -> SubmittedForm:
    return SubmittedForm({name: (value,) for name, value in fields.items()})


@pytest.mark.parametrize("text", ["-1", "11", "1.5", "1e3", "²", "٣", "x", "1" * 5000, "0x1", "1_0"])
def test_what_is_no_number_in_range_is_refused(text: str) -> None:
    reading = FormReader(a_form(share=text))
    assert reading.read_integer("share", 0, 10) is None
    with pytest.raises(Invalid) as error:
        reading.raise_if_invalid()
    assert error.value.fields == {"share": "must be a whole number from 0 to 10"}


def test_an_empty_number_is_none() -> None:
    reading = FormReader(a_form(share=" "))
    assert reading.read_integer("share", 0, 10) is None
    reading.raise_if_invalid()


@pytest.mark.parametrize("text", ["a\nb", "a\x1b[31m", "x" * 129, "a\u202eb"])
def test_a_line_is_short_and_visible(text: str) -> None:
    reading = FormReader(a_form(reason=text))
    reading.read_line("reason")
    with pytest.raises(Invalid):
        reading.raise_if_invalid()


def test_a_moment_is_as_clocks_in_the_zone_show_it() -> None:
    reading = FormReader(
        a_form(summer="2026-07-01T09:00", winter="2026-12-01T09:00", said="2026-12-01T09:00+00:00")
    )
    assert reading.read_time("summer", BERLIN) == datetime(2026, 7, 1, 7, tzinfo=UTC)
    assert reading.read_time("winter", BERLIN) == datetime(2026, 12, 1, 8, tzinfo=UTC)
    assert reading.read_time("said", BERLIN) == datetime(2026, 12, 1, 9, tzinfo=UTC)
    reading.raise_if_invalid()


@pytest.mark.parametrize("text", ["2026-03-29T02:30", "tomorrow", "", "0001-01-01T00:00", "2026-02-30T00:00"])
def test_a_moment_that_no_clock_shows_is_refused(text: str) -> None:
    reading = FormReader(a_form(at=text))
    reading.read_time("at", BERLIN)
    with pytest.raises(Invalid):
        reading.raise_if_invalid()


def test_everything_wrong_is_said_at_once() -> None:
    reading = FormReader(a_form(share="x", reason=""))
    reading.read_integer("share", 1, 2)
    reading.read_line("reason", required=True)
    with pytest.raises(Invalid) as error:
        reading.raise_if_invalid()
    assert set(error.value.fields) == {"share", "reason"}


def test_a_refused_form_keeps_what_was_typed() -> None:
    filled = form_with_errors(
        a_form(share="x"), Invalid("No.", fields={"share": "bad"}), {"share": "1", "name": "n"}
    )
    assert (filled.value("share"), filled.value("name"), filled.value("else")) == ("x", "n", "")
    assert (filled.error("share"), filled.form_error, filled.status) == ("bad", "", 422)


def test_what_belongs_to_no_field_is_said_above_or_where_it_is_told_to_be() -> None:
    error = Conflict("Taken.", "Choose another.")
    above = form_with_errors(a_form(name="x"), error, {})
    assert (above.form_error, above.hint, above.status) == ("Taken.", "Choose another.", 409)
    assert form_with_errors(a_form(name="x"), error, {}, "name").field_errors == {"name": "Taken."}


def test_a_field_that_the_form_does_not_have_is_not_swallowed() -> None:
    filled = form_with_errors(a_form(name="x"), Invalid("Weird: bad.", fields={"weird": "bad"}), {})
    assert filled.form_error == "Weird: bad."
