import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from heliostat.cli.browser import open_login_link
from integration.running_server import RunningServer


def test_a_newcomer_finds_steps_to_copy(new_page: Callable[..., Page], server: RunningServer) -> None:
    page = new_page(permissions=["clipboard-read", "clipboard-write"])
    page.goto(server.url + "/")
    expect(page.get_by_role("heading", name="Your first job in three steps")).to_be_visible()
    page.get_by_role("button", name="Copy").first.click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "helio run --gpus 1 --follow -- nvidia-smi"


def test_jobs_and_news_appear_by_themselves(page: Page, server: RunningServer) -> None:
    page.goto(server.url + "/")
    expect(page.locator("[data-live-state=on]")).to_be_visible()
    number = server.submit(command=["sleep", "600"], name="first", gpus=1)
    expect(page.locator(f"#job-{number}")).to_contain_text("running")
    expect(page.get_by_role("heading", name="Your first job in three steps")).to_have_count(0)
    waits = server.submit(command=["sleep", "600"], name="second", gpus=4, tasks=2)
    expect(page.locator(f"#job-{waits}")).to_contain_text("pending")
    announcements = server.ask("POST", "/announcements", {"text": "new disk <b>on Saturday</b>"}).json["id"]
    expect(page.get_by_text("new disk <b>on Saturday</b>")).to_be_visible()
    server.ask("DELETE", f"/announcements/{announcements}")
    expect(page.get_by_text("new disk")).to_have_count(0)


def test_without_scripts_no_button_promises_to_copy(new_page: Callable[..., Page], server: RunningServer) -> None:
    page = new_page(java_script_enabled=False)
    page.goto(server.url + "/")
    expect(page.get_by_role("button", name="Copy")).to_have_count(0)
    expect(page.get_by_text("helio token create")).to_be_visible()


def test_the_file_that_helio_web_opens_logs_in_after_a_question(
    server: RunningServer, new_page: Callable[..., Page], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    open_login_link(server.ask("POST", "/login/link", {}).json["url"] + "&next=%2Fjobs")
    page = new_page(log_in=False)
    page.goto(opened[0])
    page.get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_url(f"{server.url}/jobs")
