from datetime import datetime, timedelta

import pytest

from heliostat.errors import Forbidden, Invalid, NotFound
from heliostat.services.announcements import (
    MAX_TEXT_LENGTH,
    add_announcement,
    list_active_announcements,
    list_all_announcements,
    remove_announcement,
)
from unit.services.site import Site

HOUR = timedelta(hours=1)


def texts(site: Site) -> list[str]:
    return [one.text for one in list_active_announcements(site.context)]


def test_announcements_are_listed_newest_first_until_they_end(site: Site) -> None:
    add_announcement(site.context, site.root, "for ever")
    add_announcement(site.context, site.root, " new disk\r\non Saturday ", site.clock.at + HOUR)
    assert texts(site) == ["new disk\non Saturday", "for ever"]
    site.clock.turn(hours=1)
    assert texts(site) == ["for ever"]
    assert [one.text for one in list_all_announcements(site.context, site.root)] == [
        "new disk\non Saturday",
        "for ever",
    ]


def test_adding_and_removing_an_announcement_is_in_the_audit_log(site: Site) -> None:
    made = add_announcement(site.context, site.root, "hello")
    assert made.author == site.root.user.name
    remove_announcement(site.context, site.root, made.id)
    assert texts(site) == []
    assert [(entry.action, entry.target) for entry in site.audit()[:2]] == [
        ("announcement.remove", f"announcement {made.id}"),
        ("announcement.add", f"announcement {made.id}"),
    ]
    with pytest.raises(NotFound):
        remove_announcement(site.context, site.root, made.id)


def test_only_admins_add_remove_and_see_ended_announcements(site: Site) -> None:
    ann, made = site.person("ann"), add_announcement(site.context, site.root, "hello")
    for act in (
        lambda: add_announcement(site.context, ann, "mine"),
        lambda: remove_announcement(site.context, ann, made.id),
        lambda: list_all_announcements(site.context, ann),
    ):
        with pytest.raises(Forbidden):
            act()
    assert texts(site) == ["hello"]


@pytest.mark.parametrize(
    "text", ["", " \n ", "x" * (MAX_TEXT_LENGTH + 1), "red \x1b[31m", "a\x00b", "turned \u202e round"]
)
def test_empty_or_unprintable_text_is_refused(site: Site, text: str) -> None:
    with pytest.raises(Invalid) as caught:
        add_announcement(site.context, site.root, text)
    assert set(caught.value.fields) == {"text"}
    assert texts(site) == []


def test_invalid_end_times_are_refused(site: Site) -> None:
    for end in (site.clock.at, site.clock.at + timedelta(days=3000), datetime(2030, 1, 1)):
        with pytest.raises(Invalid) as caught:
            add_announcement(site.context, site.root, "hello", end)
        assert set(caught.value.fields) == {"ends_at"}


def test_open_pages_are_notified_of_announcements(site: Site) -> None:
    heard: list[bool] = []
    site.context.store.on_commit(lambda changes: heard.append(changes.rules_changed))
    remove_announcement(site.context, site.root, add_announcement(site.context, site.root, "hello").id)
    assert heard == [True, True]
