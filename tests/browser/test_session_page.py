"""JupyterLab itself, in a real browser, through the queue and the proxy."""

import filecmp
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from integration.running_server import RunningServer, wait_for

JUPYTER = Path(sys.executable).parents[1] / "jupyter" / "bin" / "jupyter-lab"
PATIENCE_MS = 120_000
UPLOAD_BYTES = 60 * 2**20  # in many parts: JupyterLab sends what is larger than 15 MB in parts of one
UPLOAD_SECONDS = 400

pytestmark = [
    pytest.mark.skipif(not JUPYTER.exists(), reason="JupyterLab is not there: scripts/install --test brings it"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]  # the same before and after a restart
    settings = (
        f'server.proxy_port = {port}\nsessions.jupyter_command = "{JUPYTER}"\nserver.simulate_gpus = "2xA100"\n'
    )
    server = RunningServer(settings)
    yield server
    server.remove()


@pytest.fixture
def page(chromium: Browser, server: RunningServer) -> Iterator[Page]:
    """Without an ear for the console: JupyterLab says there what it likes."""
    context = chromium.new_context()
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(server.ask("POST", "/login/link", {}).json["url"])
    yield page
    context.close()


def run_cell(page: Page, number: int, code: str) -> Locator:
    """Its output."""
    cell = page.locator(".jp-Notebook-cell").nth(number)
    editor = cell.locator(".cm-content")
    editor.click()
    editor.fill(code)
    expect(editor).to_have_text(code)
    editor.press("Shift+Enter")
    return cell.locator(".jp-OutputArea-output")


def test_a_notebook_opens_by_itself_runs_cells_and_outlives_the_server(page: Page, server: RunningServer) -> None:
    page.goto(f"{server.url}/sessions/new")
    page.get_by_label("Time limit").fill("1h")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/s/*/lab**", timeout=PATIENCE_MS)
    page.locator(".jp-LauncherCard[data-category=Notebook]").first.click()
    expect(page.get_by_role("button", name="| Idle")).to_be_visible(timeout=PATIENCE_MS)  # its kernel has answered
    expect(run_cell(page, 0, "seen = 6 * 7; print(seen, 'GPU' )")).to_contain_text("42 GPU", timeout=PATIENCE_MS)
    os.kill(server.pid, 9)
    server.process.wait(120)
    server.start()
    number = int(re.search(r"/s/(\d+)/", page.url)[1])  # type: ignore[index]
    wait_for(lambda: server.ask("GET", f"/sessions/{number}").json["is_up"], "it is found again", seconds=120)
    page.reload()  # what was typed is not saved yet; what was computed is in the kernel
    expect(page.get_by_role("button", name="| Idle")).to_be_visible(timeout=PATIENCE_MS)  # its kernel has answered
    after = run_cell(page, 0, "print(seen + 1, 'still there')")
    expect(after).to_contain_text("43 still there", timeout=PATIENCE_MS)


def test_a_terminal_opens_by_itself_and_runs_what_is_typed(page: Page, server: RunningServer) -> None:
    number = server.ask("POST", "/sessions", {"app": "terminal"}).json["id"]
    is_up = lambda: server.ask("GET", f"/sessions/{number}").json["is_up"]  # noqa: E731
    wait_for(is_up, "its server is up", seconds=120)
    page.goto(f"{server.url}/sessions/{number}?go=true")
    terminal = page.locator(".jp-Terminal .xterm")
    terminal.click(timeout=PATIENCE_MS)
    seen = server.home / "jobs" / str(number) / "work" / "seen.txt"

    def has_run() -> bool:
        """Its text is painted, not written, so nothing says when the shell waits: typed again until it did."""
        page.keyboard.type("echo $((6 * 7)) > seen.txt\n")
        page.wait_for_timeout(500)
        return seen.exists() and seen.read_text() == "42\n"

    wait_for(has_run, "the command has run", seconds=120)
    server.ask("POST", f"/jobs/{number}/cancel?force=true")
    server.finished(number)


def test_a_large_file_is_uploaded_in_the_browser(page: Page, server: RunningServer, tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        for number in range(UPLOAD_BYTES // 2**20):
            file.write(number.to_bytes(2, "big") * 2**19)  # every MiB another
    number = server.ask("POST", "/sessions", {"app": "jupyter"}).json["id"]
    wait_for(lambda: server.ask("GET", f"/sessions/{number}").json["is_up"], "its server is up", seconds=120)
    page.goto(f"{server.url}/sessions/{number}?go=true")
    with page.expect_file_chooser() as chosen:
        page.get_by_title("Upload Files").first.click(timeout=PATIENCE_MS)
    chosen.value.set_files(large)
    page.get_by_role("dialog").get_by_role("button", name="Upload").click()
    arrived = server.home / "jobs" / str(number) / "work" / large.name
    is_whole = lambda: arrived.exists() and arrived.stat().st_size == UPLOAD_BYTES  # noqa: E731
    wait_for(is_whole, "all of it is there", seconds=UPLOAD_SECONDS)
    assert filecmp.cmp(large, arrived, shallow=False)
    server.ask("POST", f"/jobs/{number}/cancel?force=true")
    server.finished(number)
