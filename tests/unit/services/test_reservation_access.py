"""Which jobs may use a reservation."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from heliostat.errors import Invalid
from heliostat.models import PlacementRequest, Reservation, Resources
from heliostat.services.cluster.reservations import check_job_reservations, create_reservation
from unit.scheduling.builders import a_job
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


def test_only_jobs_of_its_project_can_use_a_reservation(site: Site) -> None:
    create(site, "course", project="default")
    submit(site, "course")
    with pytest.raises(Invalid, match="is for project default, this job for vision"):
        submit(site, "course", project="vision")


def test_a_refusal_lists_the_usable_reservations(site: Site) -> None:
    create(site, "mine", project="default")
    create(site, "disk", nodes=("n2",))
    for name, words in (("nothing", "There is no reservation"), ("disk", "does not belong to a project")):
        with pytest.raises(Invalid) as refused:
            submit(site, name)
        assert words in refused.value.message
        assert "You can use: mine (project default)." in (refused.value.hint or "")
        assert "reservation" in refused.value.fields


def test_an_ended_reservation_is_refused(site: Site) -> None:
    create(site, "course", project="default")
    site.clock.turn(days=1)
    with pytest.raises(Invalid, match="or it has ended"):
        submit(site, "course")


def test_a_job_that_its_nodes_cannot_run_is_refused(site: Site) -> None:
    create(site, "course", project="default", gpus_per_node=1)
    with pytest.raises(Invalid, match="has 1 GPUs per node"):
        submit(site, "course", gpus=2)
    with pytest.raises(Invalid, match="No node of the reservation course can run this job"):
        submit(site, "course", placement=PlacementRequest(labels=("huge",), reservation="course"))
