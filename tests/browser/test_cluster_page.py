import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from integration.running_server import RunningServer, wait_for


@pytest.fixture
def job(server: RunningServer) -> int:
    number = server.submit(command=["sleep", "600"], name="train-x", gpus=1)
    wait_for(lambda: server.show(number)["state"] == "running", "it to run")
    return number


def test_pointing_at_a_gpu_says_who_is_on_it(page: Page, server: RunningServer, job: int) -> None:
    page.goto(server.url + "/cluster")
    details = page.locator("[data-details]")
    expect(details).to_be_hidden()
    page.locator("[data-heat] a.cell.busy").first.hover()
    expect(details).to_contain_text(f"job {job} train-x")
    page.locator("h1").hover()
    expect(details).to_be_hidden()


def test_the_map_is_walked_with_the_keyboard(page: Page, server: RunningServer, job: int) -> None:
    page.goto(server.url + "/cluster")
    cells, details = page.locator("[data-heat] a.cell"), page.locator("[data-details]")
    cells.first.focus()
    expect(details).to_contain_text("a100-01, GPU 0")
    page.keyboard.press("ArrowRight")
    expect(cells.nth(1)).to_be_focused()
    expect(details).to_contain_text("a100-01, GPU 1")
    page.keyboard.press("End")
    expect(cells.last).to_be_focused()
    page.keyboard.press("Escape")
    expect(details).to_be_hidden()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page).to_have_url(server.url + "/cluster/a100-01#gpu-0")


def test_a_cell_says_everything_to_those_who_do_not_see_it(page: Page, server: RunningServer, job: int) -> None:
    page.goto(server.url + "/cluster")
    name = re.compile(rf"GPU \d: busy.*memory.*job {job} train-x", re.DOTALL)
    expect(page.get_by_role("link", name=name)).to_have_count(1)


def test_the_map_follows_live_and_keeps_the_focus(page: Page, server: RunningServer) -> None:
    page.goto(server.url + "/cluster")
    expect(page.locator("[data-live-state=on]")).to_be_visible()
    page.locator("[data-heat] a.cell").nth(5).focus()
    before = page.locator("[data-heat] a.cell.busy").count()
    number = server.submit(command=["sleep", "600"], name="live", gpus=1)
    expect(page.locator("[data-heat] a.cell.busy")).to_have_count(before + 1)
    expect(page.locator("[data-heat] a.cell").nth(5)).to_be_focused()
    server.ask("POST", f"/jobs/{number}/cancel", {})
    expect(page.locator("[data-heat] a.cell.busy")).to_have_count(before)


def test_an_admin_drains_and_resumes_a_node(page: Page, server: RunningServer) -> None:
    page.goto(server.url + "/cluster")
    page.get_by_role("link", name="a100-02", exact=True).first.click()
    page.get_by_label("Reason").fill("new fan")
    page.get_by_role("button", name="Drain a100-02").click()
    expect(page.get_by_role("heading", name="Drain a100-02?")).to_be_visible()
    page.get_by_role("button", name="Drain a100-02").click()
    expect(page.get_by_text("a100-02 is drained.")).to_be_visible()
    expect(page.get_by_text("drained", exact=True).first).to_be_visible()
    page.get_by_role("button", name="Resume a100-02").click()
    page.get_by_role("button", name="Resume a100-02").click()
    expect(page.get_by_text("a100-02 accepts jobs again.")).to_be_visible()


def test_a_plain_user_sees_no_way_to_drain(new_page: Callable[..., Page], server: RunningServer) -> None:
    server.ask("POST", "/users", {"name": "olga", "password": "correct horse battery"})
    page = new_page(log_in=False)
    page.goto(server.url + "/cluster/a100-01")
    page.get_by_label("Name").fill("olga")
    page.get_by_label("Password").fill("correct horse battery")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="a100-01")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("Drain"))).to_have_count(0)


def test_filters_and_the_legend_work_without_scripts(new_page: Callable[..., Page], server: RunningServer) -> None:
    page = new_page(java_script_enabled=False)
    page.goto(server.url + "/cluster")
    page.get_by_label("GPU type").select_option("A100")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile("type=A100"))
    page.get_by_role("link", name=re.compile("drained")).click()
    expect(page.get_by_text("No matching GPUs")).to_be_visible()
    page.get_by_role("link", name="Clear").click()
    page.locator("[data-heat] a.cell").first.hover()
    said = "getComputedStyle(document.querySelector('[data-heat] a.cell'), '::after').content"
    assert "a100-01, GPU 0" in page.evaluate(said)
    page.get_by_role("link", name="Week").click()
    expect(page.get_by_role("link", name="Week")).to_have_attribute("aria-current", "true")
