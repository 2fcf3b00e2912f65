"""Which jobs may name a reservation."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from heliostat.errors import Invalid
from heliostat.models import PlacementRequest, Reservation, Resources
from heliostat.services.cluster.reservations import check_job_reservations, create_reservation
from unit.scheduling.made_up import a_job
from unit.services.site import Site

HOUR = timedelta(hours=1)


def create(site: Site, name: str, **fields: Any) -> None:
    begin = site.clock.at + HOUR
    create_reservation(
        site.context, site.root, replace(Reservation(name, ("n1",), begin, begin + 8 * HOUR), **fields)
    )


def submit(site: Site, name: str, gpus: float = 0, **fields: Any) -> None:
    job = a_job(0, Resources(1, 100, gpus), **{"placement": PlacementRequest(reservation=name), **fields})
    check_job_reservations(site.context, site.root, [job])


def test_a_job_of_its_project_is_let_in_and_one_of_another_is_not(site: Site) -> None:
    create(site, "course", project="default")
    submit(site, "course")
    with pytest.raises(Invalid, match="is for project default, this job for vision"):
        submit(site, "course", project="vision")


def test_others_are_refused_with_those_they_can_use(site: Site) -> None:
    create(site, "mine", project="default")
    create(site, "disk", nodes=("n2",))
    for name, words in (("nothing", "There is no reservation"), ("disk", "is for no project")):
        with pytest.raises(Invalid) as refused:
            submit(site, name)
        assert words in refused.value.message
        assert "You can use: mine (project default)." in (refused.value.hint or "")
        assert "reservation" in refused.value.fields


def test_one_that_is_over_is_not_known(site: Site) -> None:
    create(site, "course", project="default")
    site.clock.turn(days=1)
    with pytest.raises(Invalid, match="or it is over"):
        submit(site, "course")


def test_what_its_nodes_could_never_run_is_refused(site: Site) -> None:
    create(site, "course", project="default", gpus_per_node=1)
    with pytest.raises(Invalid, match="has 1 GPUs on a node"):
        submit(site, "course", gpus=2)
    with pytest.raises(Invalid, match="No node of the reservation course could ever run this"):
        submit(site, "course", placement=PlacementRequest(labels=("huge",), reservation="course"))
