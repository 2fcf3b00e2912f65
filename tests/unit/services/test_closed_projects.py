"""Projects that are moved, closed, and opened again."""

from datetime import timedelta

import pytest

from heliostat.errors import Invalid
from heliostat.services.accounts.projects import ProjectOrDepartmentChange, create_department, update_project
from heliostat.services.accounts.required_accounts import find_default_project, resolve_project
from heliostat.services.cluster.choices import job_choices_for
from unit.services.site import Site


def change(site: Site, name: str, **fields: object) -> None:
    update_project(site.context, site.root, name, ProjectOrDepartmentChange(**fields))  # type: ignore[arg-type]


def test_a_project_accepts_jobs_until_it_closes_and_again_when_it_is_opened(site: Site) -> None:
    site.project("tumours")
    ann = site.person("ann", "tumours").user
    change(site, "tumours", closes_at=site.clock() + timedelta(hours=1))
    assert resolve_project(site.context, ann, None) == "tumours"
    site.clock.turn(hours=1)
    for user in (ann, site.root.user):
        with pytest.raises(Invalid, match=r"Project tumours is closed since .* it accepts no new jobs") as refused:
            resolve_project(site.context, user, "tumours")
        assert refused.value.fields == {"project": "is closed"}
    change(site, "tumours", share=2)
    with pytest.raises(Invalid, match=r"^Project tumours is closed since .* it accepts no new jobs"):
        resolve_project(site.context, ann, None)
    change(site, "tumours", reopen=True)
    assert resolve_project(site.context, ann, "tumours") == "tumours"
    assert [entry.detail for entry in site.audit()[:3] if "closes_at" in entry.detail] == [
        {"closes_at": ["2026-03-01T13:00:00+00:00", None]},
        {"closes_at": [None, "2026-03-01T13:00:00+00:00"]},
    ]


def test_the_only_open_project_of_a_user_is_the_default_and_closed_ones_are_no_choice(site: Site) -> None:
    for name in ("first", "second"):
        site.project(name)
    ann = site.person("ann", "first", "second")
    assert find_default_project(site.context, ann.user) is None
    change(site, "first", closes_at=site.clock())
    assert find_default_project(site.context, ann.user) == "second"
    assert job_choices_for(site.context, ann).projects == ("second",)


def test_a_job_without_a_project_is_refused_while_the_default_project_is_closed(site: Site) -> None:
    site.project("tumours")
    ann = site.person("ann", "default", "tumours").user
    assert resolve_project(site.context, ann, None) == "default"
    change(site, "default", closes_at=site.clock())
    with pytest.raises(Invalid, match=r"^Project default is closed since") as refused:
        resolve_project(site.context, ann, None)
    assert refused.value.hint == "Add --project NAME. Your projects: tumours."
    assert resolve_project(site.context, ann, "tumours") == "tumours"
    change(site, "tumours", closes_at=site.clock())
    with pytest.raises(Invalid, match=r"^Project default is closed since") as refused:
        resolve_project(site.context, ann, None)
    assert "none is open" in (refused.value.hint or "")


def test_a_project_moves_to_another_department_with_its_share(site: Site) -> None:
    create_department(site.context, site.root, "surgery")
    change(site, "default", share=3)
    change(site, "default", department="surgery")
    moved = site.context.scheduling_rules.share_accounts().projects["default"]
    assert (moved.department, moved.share) == ("surgery", 3)
    assert site.audit()[0].detail == {"department": ["default", "surgery"]}
    with pytest.raises(Invalid, match="there is no department 'nowhere'"):
        change(site, "default", department="nowhere")
