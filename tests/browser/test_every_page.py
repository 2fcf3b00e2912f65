"""What holds for every page."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Response

from browser.addresses import PAGES
from integration.running_server import RunningServer

WIDE = {"viewport": {"width": 2560, "height": 1200}}


@pytest.mark.parametrize("path", PAGES)
def test_every_page_fits_a_wide_window(shared_page: Callable[..., Page], server: RunningServer, path: str) -> None:
    """`test_accessibility.py` opens them in light, in dark and on a phone, and judges more than their width."""
    page = shared_page(**WIDE)
    page.goto(server.url + path)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it is wider than the window"


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_small(shared_page: Callable[..., Page], server: RunningServer, path: str) -> None:
    page = shared_page()
    answers: list[Response] = []

    def note(answer: Response) -> None:
        answers.append(answer)

    page.goto("about:blank")  # nothing of the page before is still under way
    page.on("response", note)
    page.goto(server.url + path, wait_until="load")
    page.remove_listener("response", note)
    sizes = [len(answer.body()) for answer in answers if "/live" not in answer.url]
    assert 1000 < sum(sizes) < 100_000


@pytest.mark.parametrize("path", PAGES)
def test_every_page_works_without_scripts(
    shared_page: Callable[..., Page], server: RunningServer, path: str
) -> None:
    page = shared_page(java_script_enabled=False)
    page.goto(server.url + path)
    assert page.locator("h1").is_visible()
    assert page.locator("nav a").first.is_visible()
