from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from heliostat.errors import Conflict, Forbidden, Invalid, NotFound
from heliostat.models import Reservation
from heliostat.services.cluster.reservations import create_reservation, delete_reservation, list_reservations
from unit.services.site import Site

DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def wish(site: Site, name: str = "course", **fields: Any) -> Reservation:
    begin = site.clock.at + DAY
    return replace(Reservation(name, ("n1",), begin, begin + 8 * HOUR), **fields)


def create(site: Site, name: str = "course", **fields: Any) -> Reservation:
    return create_reservation(site.context, site.root, wish(site, name, **fields))


def names(site: Site, **filters: bool) -> list[str]:
    return [one.name for one in list_reservations(site.context, site.person("any"), **filters)]


def test_a_reservation_is_stored_and_the_scheduler_sees_it(site: Site) -> None:
    assert site.context.scheduling_rules.reservations(site.clock.at) == ()
    made = create(site, nodes=("n1", "n2"), project="default", gpus_per_node=2, weeks=12, reason="ML")
    assert site.context.scheduling_rules.reservations(site.clock.at) == (made,)
    assert list_reservations(site.context, site.root) == [made]
    entry = site.audit()[0]
    assert (entry.action, entry.target) == ("reservation.create", "course")
    delete_reservation(site.context, site.root, "course")
    assert site.context.scheduling_rules.reservations(site.clock.at) == ()
    assert site.audit()[0].action == "reservation.delete"


def test_all_users_list_reservations_by_their_next_start(site: Site) -> None:
    create(site, "later", nodes=("n2",), starts_at=site.clock.at + 2 * DAY, ends_at=site.clock.at + 3 * DAY)
    create(site, "sooner")
    assert names(site) == ["sooner", "later"]


def test_ended_reservations_are_listed_on_request_and_their_name_is_free(site: Site) -> None:
    create(site)
    site.clock.turn(days=2)
    assert names(site) == []
    assert site.context.scheduling_rules.reservations(site.clock.at) == (), "it costs no plan anything"
    assert [one.name for one in list_reservations(site.context, site.root, past=True)] == ["course"]
    again = create(site)
    assert list_reservations(site.context, site.root, past=True) == [again]


def test_a_reservation_keeps_the_time_zone_of_its_creation(site: Site) -> None:
    settings = site.context.settings
    site.context.settings = replace(settings, server=replace(settings.server, time_zone="Europe/Berlin"))  # type: ignore[misc]
    assert create(site).time_zone == "Europe/Berlin"
    site.context.settings = replace(settings, server=replace(settings.server, time_zone="Asia/Tokyo"))  # type: ignore[misc]
    assert [one.time_zone for one in list_reservations(site.context, site.root)] == ["Europe/Berlin"]


@pytest.mark.parametrize("year", [1, 9998])
def test_times_at_the_edge_of_the_calendar_are_refused(site: Site, year: int) -> None:
    begin = datetime(year, 1, 1, tzinfo=UTC)
    site.context.settings = replace(
        site.context.settings, server=replace(site.context.settings.server, time_zone="America/New_York")
    )  # type: ignore[misc]
    with pytest.raises(Invalid):
        create(site, starts_at=begin, ends_at=begin + DAY, weeks=60)


def test_only_admins_create_and_delete(site: Site) -> None:
    ann = site.person("ann")
    with pytest.raises(Forbidden):
        create_reservation(site.context, ann, wish(site))
    create(site)
    with pytest.raises(Forbidden):
        delete_reservation(site.context, ann, "course")
    assert len(site.context.scheduling_rules.reservations(site.clock.at)) == 1


def test_deleting_a_missing_reservation_is_not_found(site: Site) -> None:
    with pytest.raises(NotFound):
        delete_reservation(site.context, site.root, "x\n")


def test_a_name_in_use_is_a_conflict(site: Site) -> None:
    create(site)
    with pytest.raises(Conflict, match="already a reservation course"):
        create(site, nodes=("n2",))


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("name", {"name": "A b"}),
        ("nodes", {"nodes": ()}),
        ("nodes", {"nodes": ("n1", "n9")}),
        ("nodes", {"nodes": ("n1", "n1")}),
        ("project", {"project": "nobodys"}),
        ("gpus_per_node", {"gpus_per_node": 0}),
        ("gpus_per_node", {"gpus_per_node": 5}),
        ("gpus_per_node", {"gpus_per_node": 1, "nodes": ("n3",)}),
        ("weeks", {"weeks": 0}),
        ("weeks", {"weeks": 61}),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(site: Site, field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as caught:
        create_reservation(site.context, site.root, replace(wish(site), **fields))
    assert set(caught.value.fields) == {field}
    assert site.context.scheduling_rules.reservations(site.clock.at) == ()


@pytest.mark.parametrize(
    ("field", "starts_in", "lasts", "weeks"),
    [
        ("ends_at", DAY, timedelta(0), 1),
        ("ends_at", DAY, -HOUR, 1),
        ("ends_at", DAY, 367 * DAY, 1),
        ("ends_at", -2 * DAY, DAY, 1),
        ("ends_at", -9 * DAY, DAY, 2),
        ("weeks", DAY, 7 * DAY, 2),
        ("starts_at", 2000 * DAY, DAY, 1),
    ],
)
def test_invalid_times_are_refused(
    site: Site, field: str, starts_in: timedelta, lasts: timedelta, weeks: int
) -> None:
    begin = site.clock.at + starts_in
    with pytest.raises(Invalid) as caught:
        create(site, starts_at=begin, ends_at=begin + lasts, weeks=weeks)
    assert set(caught.value.fields) == {field}


def test_a_reservation_that_has_started_but_not_ended_is_accepted(site: Site) -> None:
    create(site, starts_at=site.clock.at - HOUR)
    create(
        site, "weekly", nodes=("n2",), starts_at=site.clock.at - 10 * DAY, ends_at=site.clock.at - 9 * DAY, weeks=3
    )


def test_a_whole_node_is_reserved_once_at_a_time(site: Site) -> None:
    first = create(site, project="default")
    for fields in ({}, {"gpus_per_node": 1}, {"starts_at": first.ends_at - HOUR, "ends_at": first.ends_at + HOUR}):
        with pytest.raises(Conflict, match="n1 is reserved for project default"):
            create(site, "second", **fields)
    create(site, "elsewhere", nodes=("n2",))
    create(site, "right-after", starts_at=first.ends_at, ends_at=first.ends_at + HOUR)


def test_weekly_reservations_overlap_in_any_week(site: Site) -> None:
    create(site, weeks=5)
    in_three_weeks = wish(site).starts_at + timedelta(weeks=3)
    with pytest.raises(Conflict):
        create(site, "clash", starts_at=in_three_weeks + HOUR, ends_at=in_three_weeks + 2 * HOUR)
    create(site, "next-day", starts_at=in_three_weeks + DAY, ends_at=in_three_weeks + DAY + HOUR)
    in_six_weeks = wish(site).starts_at + timedelta(weeks=6)
    create(site, "afterwards", starts_at=in_six_weeks, ends_at=in_six_weeks + HOUR)


def test_reserved_gpus_do_not_exceed_those_of_the_node(site: Site) -> None:
    create(site, "two", gpus_per_node=2)
    create(site, "one", gpus_per_node=1)
    with pytest.raises(Conflict):
        create(site, "two-more", gpus_per_node=2)
    create(site, "the-last", gpus_per_node=1)


def test_consecutive_gpu_reservations_do_not_add_up(site: Site) -> None:
    begin = wish(site).starts_at
    create(site, "morning", gpus_per_node=3, starts_at=begin, ends_at=begin + 4 * HOUR)
    create(site, "afternoon", gpus_per_node=3, starts_at=begin + 4 * HOUR, ends_at=begin + 8 * HOUR)
    create(site, "all-day", gpus_per_node=1)
    with pytest.raises(Conflict):
        create(site, "one-too-many", gpus_per_node=1, starts_at=begin + 7 * HOUR, ends_at=begin + 9 * HOUR)
