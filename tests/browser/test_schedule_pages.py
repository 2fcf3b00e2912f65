"""Schedules in the browser: their times are shown before they are saved; one is run, paused, edited, removed."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from integration.running_server import RunningServer

WAYS = pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])


@WAYS
def test_a_schedule_is_previewed_made_run_paused_and_removed(
    new_page: Callable[..., Page], server: RunningServer, scripts: bool
) -> None:
    name = f"nightly-{scripts}".lower()
    page = new_page(java_script_enabled=scripts)
    page.goto(server.url + "/schedules/new")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Times", exact=True).fill("30 2 * * *")
    page.get_by_label("Time zone").fill("Europe/Berlin")
    page.get_by_role("button", name="Preview next ten times").click()
    expect(page.get_by_role("status").locator("li")).to_have_count(10)
    expect(page.get_by_role("status").locator("li").first).to_contain_text(re.compile(r", 02:30 CES?T$"))
    expect(page.get_by_label("Name")).to_have_value(name)
    page.get_by_label("Job", exact=True).fill("command: [sleep, '1']\ngpus: 1\nenv: {TOKEN: secret}")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    page.get_by_role("button", name="Run now").click()
    expect(page.locator("tr[id^=firing-]")).to_have_count(1)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("No upcoming times.")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("Retries").fill("3")
    page.get_by_role("button", name="Save").click()
    assert server.ask("GET", f"/schedules/{name}").json["retries"] == 3
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name=f"Remove {name}").click()
    expect(page.get_by_text(f"Schedule {name} removed.")).to_be_visible()
    assert server.ask("GET", f"/schedules/{name}").status == 404


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 375])
def test_the_page_of_a_schedule_fits_and_says_what_became_of_its_firings(
    new_page: Callable[..., Page], server: RunningServer, scheme: str, width: int, tmp_path: Path
) -> None:
    name = f"shown-{scheme}-{width}"
    body = {"name": name, "schedule": "R1//PT10S", "job": {"command": "true", "cpus": 1}}
    number = server.ask("POST", "/schedules", body).json["id"]
    page = new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    page.goto(f"{server.url}/schedules/{number}")
    expect(page.locator("tr[id^=firing-]")).to_have_count(1)
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, "it scrolls sideways"
    page.screenshot(path=tmp_path / "schedule.png", full_page=True)
