"""What people may ask of a hub whose servers are jobs: by its form, or by whatever they send."""

from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.errors import Invalid
from heliostat.integrations.jupyterhub_options import FIELDS, parse_user_options, read_form, render_form

OFFERED = {"PyTorch": "@0123456789ab", "R & co": "/srv/r/environment.yml"}


class Fields(HTMLParser):
    """The fields of a form, with what is filled in."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.labels: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("input", "select"):
            assert given["id"] == given["name"]
            self.found[str(given["name"])] = given.get("value") or ""
        elif tag == "label":
            self.labels.add(str(given["for"]))
        else:
            assert tag in ("div", "option")


def test_the_form_has_a_labelled_field_for_each_thing_one_may_choose() -> None:
    shown = Fields(render_form(FIELDS, {"time": "4h", "project": '"><script>'}, OFFERED))
    assert tuple(shown.found) == FIELDS
    assert shown.labels == set(FIELDS)
    assert (shown.found["time"], shown.found["project"]) == ("4h", '"><script>')
    assert "R &amp; co" in render_form(FIELDS, {}, OFFERED)


def test_software_is_asked_for_only_where_some_is_offered() -> None:
    assert "environment" not in Fields(render_form(FIELDS, {}, ())).found
    assert render_form((), {}, OFFERED) == ""


def test_of_the_form_only_what_was_filled_in_counts() -> None:
    sent = {"gpus": [" 1 "], "cpus": [""], "_xsrf": ["x"], "image": ["mine"]}
    assert read_form(sent, FIELDS) == {"gpus": "1"}


def test_wishes_become_fields_of_a_job() -> None:
    asked = {"gpus": "0.5", "cpus": "4", "memory": "16G", "time": 3600, "environment": "PyTorch", "project": None}
    expected = {"gpus": 0.5, "cpus": 4, "memory": "16G", "time": "3600s", "environment": "@0123456789ab"}
    assert parse_user_options(asked, FIELDS, OFFERED) == expected
    assert parse_user_options({"gpus": "2"}, FIELDS, OFFERED) == {"gpus": 2}


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"gpus": "many"}, "gpus"),
        ({"gpus": -1}, "gpus"),
        ({"gpus": "nan"}, "gpus"),
        ({"gpus": "inf"}, "gpus"),
        ({"gpus": True}, "gpus"),
        ({"gpus": ["1"]}, "gpus"),
        ({"cpus": "1.5"}, "cpus"),
        ({"cpus": 0}, "cpus"),
        ({"memory": {"a": 1}}, "memory"),
        ({"time": "4h\n"}, "time"),
        ({"project": "x" * 201}, "project"),
        ({"environment": "/etc/shadow"}, "environment"),
        ({"environment": "@0123456789ab"}, "environment"),
        ({"image": "mine"}, "image"),
        ({"env": {"LD_PRELOAD": "x"}}, "env"),
        ({"mounts": ["/:/host"]}, "mounts"),
    ],
)
def test_what_cannot_be_asked_for_is_named(asked: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_user_options(asked, FIELDS, OFFERED)
    assert list(refused.value.fields) == [field]


def test_an_admin_may_narrow_the_choice() -> None:
    with pytest.raises(Invalid, match="time cannot be chosen") as refused:
        parse_user_options({"time": "30d"}, ("gpus",), {})
    assert refused.value.hint == "This hub lets you choose: gpus."


SENT = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.integers())


@given(st.dictionaries(st.sampled_from((*FIELDS, "image", "env", "")), SENT, max_size=4))
def test_whatever_is_sent_is_a_wish_or_refused_in_words(asked: dict[str, Any]) -> None:
    try:
        read = parse_user_options(asked, FIELDS, OFFERED)
    except Invalid as error:
        read = dict.fromkeys(error.fields)
        assert len(read) == 1
        return
    assert read.keys() <= set(FIELDS)
