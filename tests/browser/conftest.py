"""A real server and a real Chromium. A console error or a policy violation fails whatever test it happens in."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from integration.running_server import RunningServer

try:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright
except ImportError:
    pytest.skip("playwright is not installed: make test installs it", allow_module_level=True)

# The one without windows draws the same pages in the same way with a third of the work.
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")
DEADLINE_MS = 90_000  # for a machine that has more to do than it can; only a test that fails waits so long
expect.set_options(timeout=DEADLINE_MS)
_EXPECTED = "status of 404"  # a page that is asked for and not there is an error for the console only


@pytest.fixture(scope="module")  # while it is open, asyncio.run() does not work in this thread
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """Two made-up nodes of four GPUs."""
    server = RunningServer('server.engine = "simulated"\nserver.simulated_nodes = "2x4xA100"\n')
    yield server
    server.remove()


@pytest.fixture
def new_page(chromium: Browser, server: RunningServer) -> Iterator[Callable[..., Page]]:
    """Makes logged-in pages: `new_page()`, `new_page(java_script_enabled=False)`, `new_page(name="anna")`."""
    with _watched(chromium, server) as new:
        yield new


@pytest.fixture(scope="module")
def shared_page(chromium: Browser, server: RunningServer) -> Iterator[Callable[..., Page]]:
    """As `new_page`, once for all tests of a file that ask for the same: for those who only look."""
    made: dict[str, Page] = {}
    with _watched(chromium, server) as new:

        def same(**options: Any) -> Page:
            return made.get(key := str(options)) or made.setdefault(key, new(**options))

        yield same


@contextmanager
def _watched(chromium: Browser, server: RunningServer) -> Iterator[Callable[..., Page]]:
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def make(*, log_in: bool = True, **options: Any) -> Page:
        context = chromium.new_context(**options)
        context.set_default_timeout(DEADLINE_MS)
        context.on("console", lambda message: _note(complaints, message))
        context.on("weberror", lambda error: complaints.append(str(error.error)))
        contexts.append(context)
        page = context.new_page()
        if log_in:
            page.goto(server.ask("POST", "/login/link", {}).json["url"])
        return page

    yield make
    for context in contexts:
        context.close()
    assert not complaints, complaints


def _note(complaints: list[str], message: ConsoleMessage) -> None:
    if message.type in ("error", "warning") and _EXPECTED not in message.text:
        complaints.append(f"{message.location['url']}: {message.type}: {message.text}")


@pytest.fixture
def page(new_page: Callable[..., Page]) -> Page:
    return new_page()
