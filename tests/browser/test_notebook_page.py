"""The page on which a notebook of a session is run as a job, in a real browser."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from browser.test_accessibility import LOOKS, ask_ourselves
from integration.running_server import RunningServer, wait_for
from support.notebooks import write_notebook

PATIENCE_MS = 120_000


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer('sessions.jupyter_command = "/nowhere/jupyter-lab"\nserver.simulate_gpus = "2xA100"\n')
    (server.folder / "project").mkdir()
    for name in ("analysis.ipynb", "train.ipynb"):
        write_notebook(server.folder / "project" / name, "1")
    yield server
    server.remove()


@pytest.fixture(scope="module")
def session(server: RunningServer) -> int:
    body = {"app": "custom", "command": ["sleep", "3600"], "workdir": str(server.folder / "project")}
    number: int = server.ask("POST", "/sessions", {**body, "cpus": 1, "memory": "256M"}).json["id"]
    wait_for(lambda: server.show(number)["state"] == "running", "the session runs")
    return number


@pytest.mark.parametrize("look", LOOKS)
def test_everybody_can_use_the_page(
    new_page: Callable[..., Page], server: RunningServer, session: int, look: str
) -> None:
    page = new_page(**LOOKS[look])
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{server.url}/sessions/{session}/notebooks")
    expect(page.get_by_label("Notebook", exact=True)).to_be_visible()
    assert ask_ourselves(page) == []


def test_a_chosen_notebook_becomes_a_job_that_says_what_is_missing(
    new_page: Callable[..., Page], server: RunningServer, session: int
) -> None:
    page = new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{server.url}/sessions/{session}")
    page.get_by_role("link", name="Run a notebook as a job").click()
    page.get_by_label("Notebook", exact=True).select_option("train.ipynb")
    page.get_by_label("Parameters").fill("lr = 0.1\nname = resnet")
    page.get_by_label("CPUs").fill("1")
    page.get_by_label("Memory").fill("256M")
    page.get_by_role("button", name="Run notebook").click()
    page.wait_for_url(re.compile(r"/jobs/\d+$"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("train")
    expect(page.get_by_text("Papermill is not installed on its node").first).to_be_visible(timeout=PATIENCE_MS)
