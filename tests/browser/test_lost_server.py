"""A page says that the server does not respond, and notices by itself when it responds again."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from integration.running_server import RunningServer
from support.breakable_connection import BreakableConnection, breakable_connection

LOSS = "The server does not respond."


@pytest.fixture
def connection(server: RunningServer) -> Iterator[BreakableConnection]:
    with breakable_connection(urlsplit(server.url).port or 0) as connection:
        yield connection


@pytest.fixture
def phone(chromium: Browser, server: RunningServer, connection: BreakableConnection) -> Iterator[Page]:
    """Refused connections are errors on its console."""
    context = chromium.new_context(viewport={"width": 375, "height": 740})
    page = context.new_page()
    link = server.ask("POST", "/login/link", {}).json["url"]
    page.goto(urlsplit(link)._replace(netloc=f"127.0.0.1:{connection.port}").geturl())
    yield page
    context.close()


def test_a_lost_server_is_seen_on_every_page_until_it_is_back(
    phone: Page, server: RunningServer, connection: BreakableConnection
) -> None:
    address = f"http://127.0.0.1:{connection.port}"
    phone.goto(address + "/jobs")
    expect(phone.locator("[data-live-state=on]")).to_be_visible()
    form = phone.context.new_page()
    with form.expect_response("**/live*"):
        form.goto(address + "/schedules/new")
    form.get_by_label("Name").fill("typed")
    connection.cut()
    for page in (phone, form):
        expect(page.get_by_text(LOSS)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    number = server.submit(command=["sleep", "600"], name="after", gpus=1)
    connection.restore()
    for page in (phone, form):
        expect(page.get_by_text(LOSS)).to_be_hidden()
    expect(phone.locator(f"#job-{number}")).to_contain_text("running")
    expect(form.get_by_label("Name")).to_have_value("typed")
