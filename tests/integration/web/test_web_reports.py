"""Shares and reports in the web: what each may see of others, and files for spreadsheets."""

import csv
import io

import pytest

from integration.running_server import RunningServer
from integration.web.surfing import Surfer

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def used(server: RunningServer) -> RunningServer:
    """Somebody has run something."""
    for name in ("looker", "other-one"):
        assert server.ask("POST", "/users", {"name": name, "password": PASSWORD}).status == 201
    assert server.ask("POST", "/projects", {"name": "secretive", "department": "default"}).status == 201
    me = server.ask("GET", "/whoami").json["user"]["name"]
    assert server.ask("PUT", f"/projects/secretive/members/{me}", {"role": "member"}).status == 200
    server.finished(server.submit(command=["true"], name="done", project="secretive"))
    return server


def by_password(server: RunningServer, name: str) -> Surfer:
    surfer = Surfer(server)
    assert surfer.log_in(name, PASSWORD).status == 303
    return surfer


def test_an_admin_sees_everybody_and_a_file_of_it(used: RunningServer) -> None:
    surfer = Surfer(used).by_link()
    assert "secretive" in surfer.get("/reports?by=project").text
    seen = surfer.get("/reports.csv?by=project")
    assert seen.headers["content-type"] == "text/csv; charset=utf-8"
    assert seen.headers["content-disposition"].endswith('-project.csv"')
    assert seen.headers["x-content-type-options"] == "nosniff"
    lines = list(csv.DictReader(io.StringIO(seen.text)))
    assert [line["project"] for line in lines] == ["secretive"]


@pytest.mark.parametrize("by", ["department", "project", "user"])
def test_a_plain_user_sees_only_their_own(used: RunningServer, by: str) -> None:
    surfer = by_password(used, "looker")
    seen = surfer.get(f"/reports?by={by}")
    assert seen.status == 200
    assert "Your own jobs." in seen.text
    assert "No jobs in" in seen.text
    assert "secretive" not in seen.text
    assert len(surfer.get(f"/reports.csv?by={by}").text.splitlines()) == 1


@pytest.mark.parametrize(
    "query", ["month=nonsense", "month=9998-01", "month=%3Cscript%3E", "by=planet", "month=" + "1" * 500]
)
def test_wrong_months_and_groups_are_refused_as_a_page(used: RunningServer, query: str) -> None:
    surfer = Surfer(used).by_link()
    for path in ("/reports", "/reports.csv", "/reports/waste", "/reports/waste.csv"):
        seen = surfer.get(f"{path}?{query}")
        assert seen.status == 422
        assert "<script>" not in seen.text


def test_an_old_month_is_empty_and_says_so(used: RunningServer) -> None:
    text = Surfer(used).by_link().get("/reports?month=2001-05").text
    assert "No jobs in May 2001" in text
    assert '<option value="2001-05" selected>' in text


def test_reports_are_sorted_by_any_column(used: RunningServer) -> None:
    surfer = Surfer(used).by_link()
    assert 'aria-sort="ascending"' in surfer.get("/reports?by=project&sort=name").text
    assert surfer.get("/reports?sort=__class__").status == 200


def test_the_people_of_other_projects_are_not_shown(used: RunningServer) -> None:
    me = used.ask("GET", "/whoami").json["user"]["name"]
    assert f'id="share-d-default-p-secretive-u-{me}"' in Surfer(used).by_link().get("/share?people=true").text
    theirs = by_password(used, "looker").get("/share?people=true").text
    assert 'id="share-d-default-p-secretive"' in theirs
    assert f"u-{me}" not in theirs
    assert "/admin/projects" not in theirs
    assert "for running jobs. Users are shown only for your own projects." in theirs


def test_entitled_and_delivered_are_shown_without_the_people_of_other_projects(used: RunningServer) -> None:
    me = used.ask("GET", "/whoami").json["user"]["name"]
    mine = Surfer(used).by_link().get("/share/delivery?people=true&weeks=2").text
    assert f'<span class="share-name">{me}</span> <span class="tag">you</span>' in mine
    assert "GPU-hours per day" in mine
    theirs = by_password(used, "looker").get("/share/delivery?people=true").text
    assert '<span class="share-name">secretive</span>' in theirs
    assert f'<span class="share-name">{me}</span>' not in theirs
    assert "Users are shown only for your own projects." in theirs


@pytest.mark.parametrize("weeks", ["0", "14", "-1", "x", "9" * 400])
def test_an_impossible_number_of_weeks_is_refused_as_a_page(used: RunningServer, weeks: str) -> None:
    assert Surfer(used).by_link().get(f"/share/delivery?weeks={weeks}").status == 422


def test_the_tree_is_served_alone_for_live_pages(used: RunningServer) -> None:
    text = Surfer(used).by_link().get("/share", X_Fragment="tree").text
    assert text.startswith('<template data-part="tree">')


@pytest.mark.parametrize("by", ["department", "project", "user"])
def test_waste_is_shown_of_the_same_jobs_as_usage(used: RunningServer, by: str) -> None:
    used.finished(used.submit(command=["true"], name="with-gpu", project="secretive", gpus=1))
    admin, user = Surfer(used).by_link(), by_password(used, "looker")
    seen = admin.get(f"/reports/waste?by={by}")
    assert "Returned" in seen.text
    (line,) = csv.DictReader(io.StringIO(admin.get(f"/reports/waste.csv?by={by}").text))
    assert set(line) >= {by, "granted_gpu_hours", "used_gpu_hours", "idle_gpu_hours", "returned_gpu_hours"}
    assert len(user.get(f"/reports/waste.csv?by={by}").text.splitlines()) == 1
    assert "No jobs with GPUs" in user.get("/reports/waste").text


def test_only_admins_see_what_the_steps_against_idle_gpus_would_have_done(used: RunningServer) -> None:
    assert "No idle jobs in" in Surfer(used).by_link().get("/reports/idle").text
    assert by_password(used, "looker").get("/reports/idle").status in {403, 404}
    assert "/reports/idle" not in by_password(used, "looker").get("/reports/waste").text
