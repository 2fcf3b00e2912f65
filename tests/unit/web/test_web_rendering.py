from datetime import UTC, datetime

import pytest

from heliostat.auth.web_logins import create_csrf_token, is_valid_csrf_token
from heliostat.models import User
from heliostat.models.accounts import Role
from heliostat.services.change_topics import ChangedTopics, match_topics
from heliostat.web import formatting
from heliostat.web.error_pages import safe_redirect_path
from heliostat.web.rendering import FlashMessage, FlashMessages, navigation_links
from heliostat.web.view_models import PageUrl, build_pager, build_sort_links, parse_sort


def test_a_form_token_fits_only_its_cookie_and_never_looks_the_same() -> None:
    one, other = create_csrf_token("secret"), create_csrf_token("secret")
    assert one != other
    assert is_valid_csrf_token("secret", one)
    assert is_valid_csrf_token("secret", other)
    assert not is_valid_csrf_token("another", one)


@pytest.mark.parametrize("shown", ["", "x", "é", "A" * 86, "A" * 85])
def test_what_is_no_token_is_refused_quietly(shown: str) -> None:
    assert not is_valid_csrf_token("secret", shown)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, formatting.NO_VALUE), (0, "0 s"), (185, "3 min 5 s"), (7200, "2 h"), (442800, "5 d 3 h")],
)
def test_durations_are_short(seconds: float | None, said: str) -> None:
    assert formatting.format_duration(seconds) == said


def test_sizes_and_numbers_are_in_human_units() -> None:
    assert (formatting.format_size(512), formatting.format_size(1536), formatting.format_size(2**20)) == (
        "512 MiB",
        "1.5 GiB",
        "1 TiB",
    )
    assert (formatting.format_number(12345), formatting.format_number(0.5), formatting.format_count(1, "job")) == (
        "12,345",
        "0.5",
        "1 job",
    )


def test_few_hours_are_not_rounded_away() -> None:
    assert [formatting.format_hours(amount) for amount in (0, 0.4, 99.94, 24_434.2)] == [
        "0",
        "0.4",
        "99.9",
        "24,434",
    ]


def test_every_page_of_a_topic_marks_its_link_in_the_navigation() -> None:
    user = User("ann", Role.USER, "ann", True, datetime(2026, 3, 1, tzinfo=UTC))
    served = frozenset({"/", "/jobs", "/workflows", "/environments"})
    for path, title in (
        ("/", "Home"),
        ("/arrays/7", "Jobs"),
        ("/sweeps", "Workflows"),
        ("/images/x", "Environments"),
    ):
        assert [link.title for link in navigation_links(user, served, path) if link.is_current] == [title]


def test_a_page_hears_only_of_what_it_shows() -> None:
    changed = ChangedTopics(frozenset({12})) | ChangedTopics(nodes=True)
    assert match_topics(changed, ["jobs", "job:12", "job:13", "nodes", "rules"]) == {"jobs", "job:12", "nodes"}


@pytest.mark.parametrize("wanted", ["//x", "/\\x", "http://x", "", "/login", "/logout", "/a b", "/" + "x" * 3000])
def test_only_pages_of_ours_follow_a_login(wanted: str) -> None:
    assert safe_redirect_path(wanted) == "/"


def test_sorting_once_more_turns_the_order_round() -> None:
    found = build_sort_links(PageUrl("/jobs", {"q": "a&b", "page": "3"}), ["id", "user"], "id", True)
    assert found["id"].href == "/jobs?q=a%26b&sort=id"
    assert found["user"].direction == ""
    assert parse_sort("; drop", ["id"]) == ("id", True)


def test_a_pager_knows_its_ends() -> None:
    made = build_pager(PageUrl("/jobs", {}), 3, 50, 120)
    assert (made.first, made.last, made.previous_url, made.next_url) == (101, 120, "/jobs?page=2", "")


def test_a_word_is_shown_once() -> None:
    flashes = FlashMessages()
    flashes.add("mine", FlashMessage("good", "Done."))
    assert flashes.take("other") == ()
    assert [flash.text for flash in flashes.take("mine")] == ["Done."]
    assert flashes.take("mine") == ()
