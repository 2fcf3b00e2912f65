"""The page of notifications, as a person uses it."""

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from integration.running_server import RunningServer
from support.notification_receivers import HttpReceiver, running_http_receiver


@pytest.fixture(scope="module")
def receiver() -> Iterator[HttpReceiver]:
    with running_http_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def server(receiver: HttpReceiver) -> Iterator[RunningServer]:
    settings = f'notifications.hosts = ["{receiver.host}"]\nnotifications.networks = ["127.0.0.0/8"]\n'
    server = RunningServer(f'server.engine = "simulated"\n{settings}')
    yield server
    server.remove()


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_a_notification_is_added_tried_out_and_removed(
    new_page: Callable[..., Page], server: RunningServer, receiver: HttpReceiver, scripts: bool
) -> None:
    page = new_page(java_script_enabled=scripts)
    page.goto(f"{server.url}/notifications")
    expect(page.get_by_role("heading", name="No notifications yet")).to_be_visible()
    page.get_by_label("Channel").select_option("webhook")
    page.get_by_label("Address", exact=True).fill(receiver.url)
    page.get_by_label("a job fails").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("hns_")).to_be_visible()
    page.goto(f"{server.url}/notifications")
    assert "hns_" not in page.content()
    assert "/hook/secret" not in page.content()
    expect(page.get_by_role("cell", name="ended, failed")).to_be_visible()
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_text("Test sent.")).to_be_visible()
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("button", name="Remove notification").click()
    expect(page.get_by_role("heading", name="No notifications yet")).to_be_visible()
