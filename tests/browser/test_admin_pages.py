import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from integration.running_server import RunningServer

PASSWORD = "correct horse battery"
WAYS = pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])


@WAYS
def test_an_admin_drains_a_node_and_resumes_it(
    new_page: Callable[..., Page], server: RunningServer, scripts: bool
) -> None:
    page = new_page(java_script_enabled=scripts)
    page.goto(server.url + "/admin/nodes")
    page.get_by_role("link", name="a100-02").click()
    page.get_by_label("Reason").fill("new fan")
    page.get_by_role("button", name="Drain").click()
    expect(page.get_by_text("a100-02 is drained")).to_be_visible()
    assert server.ask("GET", "/nodes/a100-02").json["reason"] == "new fan"
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("a100-02 accepts jobs again.")).to_be_visible()
    assert server.ask("GET", "/nodes/a100-02").json["state"] == "up"


def test_the_list_of_nodes_follows_without_a_reload(page: Page, server: RunningServer) -> None:
    page.goto(server.url + "/admin/nodes")
    expect(page.locator("[data-live-state=on]")).to_be_visible()
    server.ask("POST", "/nodes/a100-01/drain", {"reason": "hot"})
    expect(page.locator("#node-a100-01")).to_contain_text("drained")
    expect(page.locator("#node-a100-01")).to_contain_text("hot")
    server.ask("POST", "/nodes/a100-01/resume", {})
    expect(page.locator("#node-a100-01")).not_to_contain_text("drained")


@WAYS
def test_an_account_is_made_used_and_ended(
    new_page: Callable[..., Page], server: RunningServer, scripts: bool
) -> None:
    name = f"person{int(scripts)}"
    page = new_page(java_script_enabled=scripts)
    page.goto(server.url + "/admin/users")
    page.get_by_role("link", name="New user").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_role("button", name="Create account").click()
    password = page.locator(".secret code").inner_text()
    theirs = new_page(log_in=False, java_script_enabled=scripts)
    _log_in(theirs, server, name, password)
    expect(theirs).to_have_url(server.url + "/")
    page.get_by_role("link", name="Done").click()
    page.get_by_role("button", name="Deactivate").click()
    page.get_by_role("button", name=f"Deactivate {name}").click()
    expect(page.get_by_text(f"{name} is deactivated.")).to_be_visible()
    theirs.goto(server.url + "/jobs")
    expect(theirs).to_have_url(re.compile("/login"))


@WAYS
def test_a_project_gets_members_a_share_and_a_quota(
    new_page: Callable[..., Page], server: RunningServer, scripts: bool
) -> None:
    name = f"study{int(scripts)}"
    page = new_page(java_script_enabled=scripts)
    page.goto(server.url + "/admin/new-project")
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Create project").click()
    page.get_by_label("User").fill("nobody-like-that")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.locator("#error-user")).to_contain_text("There is no user")
    page.get_by_label("User").fill("root")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text(f"root is a member of {name}.")).to_be_visible()
    page.get_by_label("Share").fill("4")
    page.get_by_label("Running GPUs").fill("2")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    page.goto(server.url + "/admin/quotas")
    expect(page.locator(f"#quota-project-{name}")).to_contain_text("2")
    page.goto(server.url + f"/admin/projects/{name}")
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Remove root").click()
    expect(page.get_by_text("No members yet.")).to_be_visible()


@WAYS
def test_nodes_are_set_aside_and_given_back(
    new_page: Callable[..., Page], server: RunningServer, scripts: bool
) -> None:
    page = new_page(java_script_enabled=scripts)
    page.goto(server.url + "/admin/reservations")
    page.get_by_role("link", name="New reservation").click()
    page.get_by_label("Name").fill("cooling")
    page.get_by_label("a100-01").check()
    page.get_by_role("button", name="Create reservation").click()
    expect(page.get_by_text("Maintenance window cooling created.")).to_be_visible()
    page.get_by_role("button", name="End").click()
    page.get_by_role("button", name="End cooling").click()
    expect(page.get_by_text("No reservations")).to_be_visible()


@WAYS
def test_news_are_told_and_removed(new_page: Callable[..., Page], server: RunningServer, scripts: bool) -> None:
    page = new_page(java_script_enabled=scripts)
    page.goto(server.url + "/admin/announcements")
    page.get_by_label("Text").fill("Cake in the kitchen.")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("cell", name="Cake in the kitchen.")).to_be_visible()
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Remove announcement").click()
    expect(page.get_by_role("heading", name="No announcements")).to_be_visible()


def test_the_audit_log_is_searched(page: Page, server: RunningServer) -> None:
    server.ask("POST", "/departments", {"name": "sought"})
    page.goto(server.url + "/admin/audit")
    page.get_by_label("Action or target").fill("sought")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr")).to_have_count(1)


def test_a_plain_user_has_no_way_to_the_pages_of_admins(
    new_page: Callable[..., Page], server: RunningServer
) -> None:
    server.ask("POST", "/users", {"name": "otto", "password": PASSWORD})
    page = new_page(log_in=False)
    _log_in(page, server, "otto", PASSWORD)
    expect(page.get_by_role("link", name="Reports")).to_be_visible()
    expect(page.get_by_role("link", name="Admin")).to_have_count(0)


def test_a_plain_user_is_refused_with_a_kind_page(new_page: Callable[..., Page], server: RunningServer) -> None:
    server.ask("POST", "/users", {"name": "olga", "password": PASSWORD})
    page = new_page(log_in=False, java_script_enabled=False)
    _log_in(page, server, "olga", PASSWORD)
    page.request.get(server.url + "/admin")  # not opened, for the console would call it an error
    answer = page.request.get(server.url + "/admin/users")
    assert answer.status == 403
    assert "Only an admin may do this." in answer.text()
    assert "Ask an admin" in answer.text()


def _log_in(page: Page, server: RunningServer, name: str, password: str) -> None:
    page.goto(server.url + "/login")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
