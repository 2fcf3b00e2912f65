"""Workflows and sweeps in the browser: the graph is live, leads to jobs, and keeps nobody out."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from browser.test_accessibility import LOOKS, ask_both
from integration.running_server import RunningServer

SMALL = {"command": ["sleep", "1"], "cpus": 1}


def submitted(server: RunningServer, jobs: dict[str, Any], name: str = "flow") -> int:
    answer = server.ask("POST", "/workflows", {"workflow": {"name": name, "jobs": jobs}})
    assert answer.status == 201, answer.body
    number: int = answer.json["id"]
    return number


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_workflow_is_shown_cancelled_and_tried_again(
    new_page: Callable[..., Page], server: RunningServer, scripts: bool
) -> None:
    jobs = {"hold": {**SMALL, "held": True}, "many": {**SMALL, "needs": "hold", "matrix": {"x": [1, 2, 3]}}}
    number = submitted(server, jobs)
    page = new_page(java_script_enabled=scripts)
    page.goto(server.url + "/workflows")
    page.locator(f"#workflow-{number}").get_by_role("link").click()
    expect(page.locator(".graph .box")).to_have_count(2)
    expect(page.locator(".gantt a")).to_have_count(4)
    page.locator(".graph .step-pending").click()
    expect(page.locator("tr[id^=key-]")).to_have_count(3)
    page.get_by_role("button", name="Cancel workflow").click()
    page.get_by_role("button", name="Cancel workflow").click()
    expect(page.get_by_text("4 jobs cancelled.")).to_be_visible()
    page.get_by_role("button", name="Retry failed jobs").click()
    expect(page.get_by_text("4 jobs submitted again.")).to_be_visible()
    page.locator(".graph .step-held").click()
    expect(page).to_have_url(
        f"{server.url}/jobs/{server.ask('GET', f'/workflows/{number}').json['jobs'][0]['job_id']}"
    )


def test_the_graph_follows_its_jobs(new_page: Callable[..., Page], server: RunningServer) -> None:
    number = submitted(server, {"hold": {**SMALL, "held": True}, "then": {**SMALL, "needs": "hold"}})
    page = new_page()
    page.goto(f"{server.url}/workflows/{number}")
    expect(page.locator(".graph .step-held")).to_have_count(1)
    job = server.ask("GET", f"/workflows/{number}").json["jobs"][0]["job_id"]
    server.ask("POST", f"/jobs/{job}/cancel")
    expect(page.locator(".graph .step-cancelled")).to_have_count(1)
    expect(page.locator(".graph .step-skipped")).to_have_count(1)


@pytest.mark.parametrize("look", LOOKS)
def test_the_pages_fit_and_keep_nobody_out(
    new_page: Callable[..., Page], server: RunningServer, look: str
) -> None:
    jobs: dict[str, Any] = {"a": {**SMALL, "held": True}}
    jobs |= {f"b{at}": {**SMALL, "needs": "a"} for at in range(20)}
    jobs["c"] = {**SMALL, "needs": [f"b{at}" for at in range(20)], "if": "always()"}
    number = submitted(server, jobs, "wide")
    sweep = {"job": {**SMALL, "held": True}, "grid": {"lr": [0.1, 0.01], "text": ["<b>", "x" * 60]}}
    other = server.ask("POST", "/sweeps", {"sweep": sweep}).json["id"]
    page = new_page(**LOOKS[look])
    for path in (f"/workflows/{number}", f"/workflows/{number}?step=b3", f"/sweeps/{other}?sort=-lr", "/sweeps"):
        page.goto(server.url + path)
        assert ask_both(page, look) == [], path
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, "it scrolls sideways"
