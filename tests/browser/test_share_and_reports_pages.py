from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from integration.running_server import RunningServer, wait_for

WAYS = pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])


@pytest.fixture(scope="module", autouse=True)
def used(server: RunningServer) -> None:
    """Something runs, so there is something to share and to report."""
    number = server.submit(command=["sleep", "600"], name="used", gpus=2)
    wait_for(lambda: server.show(number)["state"] == "running", "the job to run", lambda: server.log)


@WAYS
def test_the_tree_shows_who_used_what(new_page: Callable[..., Page], server: RunningServer, scripts: bool) -> None:
    page = new_page(java_script_enabled=scripts)
    page.goto(server.url + "/")
    page.get_by_role("link", name="Fair share").click()
    expect(page.get_by_text("has the next turn")).to_be_visible()
    expect(page.locator("#share-d-default-p-default")).to_contain_text("%")
    page.get_by_role("link", name="Projects and users").click()
    expect(page.locator("#share-d-default-p-default-u-root")).to_contain_text("you")


@WAYS
def test_entitled_and_delivered_are_compared_over_weeks(
    new_page: Callable[..., Page], server: RunningServer, scripts: bool
) -> None:
    page = new_page(java_script_enabled=scripts)
    page.goto(server.url + "/share")
    page.get_by_role("link", name="Entitled and delivered").click()
    expect(page.get_by_role("heading", name="GPU-hours per day")).to_be_visible()
    expect(page.get_by_role("img", name="department default")).to_be_visible()
    page.get_by_role("link", name="12 weeks").click()
    expect(page.get_by_role("heading", name="GPU-hours per week")).to_be_visible()
    page.get_by_role("link", name="Projects and users").click()
    expect(page.get_by_role("row", name="root you user")).to_be_visible()
    expect(page.get_by_role("heading", name="GPU-hours per week")).to_be_visible()


@WAYS
def test_a_report_is_chosen_and_downloaded(
    new_page: Callable[..., Page], server: RunningServer, scripts: bool
) -> None:
    page = new_page(java_script_enabled=scripts)
    page.goto(server.url + "/reports")
    page.get_by_role("link", name="Users").click()
    expect(page.get_by_role("rowheader", name="root")).to_be_visible()
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("rowheader", name="root")).to_be_visible()
    with page.expect_download() as started:
        page.get_by_role("link", name="CSV").click()
    assert started.value.suggested_filename.endswith("-user.csv")
    assert "root" in started.value.path().read_text()


def test_a_manager_finds_their_project_from_the_tree(page: Page, server: RunningServer) -> None:
    page.goto(server.url + "/share")
    page.locator("#share-d-default-p-default").get_by_role("link", name="manage").click()
    expect(page.get_by_role("heading", name="Members", exact=True)).to_be_visible()
