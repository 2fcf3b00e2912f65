"""Environments and images in the browser: what is asked for in a form is built while one looks on."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from integration.running_server import RunningServer
from integration.unix_users import needs_root
from support.container_images import TEST_IMAGE, import_test_image, podman_skip_reason
from support.package_index import PackageIndex, running_package_index

pytest.importorskip("uv", reason="uv builds environments, and is not installed")
needs_python = pytest.mark.skipif(
    not os.path.exists("/usr/bin/python3"), reason="needs a Python that every user may run"
)
needs_podman = pytest.mark.skipif(podman_skip_reason() is not None, reason=podman_skip_reason() or "")
BUILDING_MS = 150_000  # on a busy machine


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build waits until this file is there."""
    return tmp_path_factory.mktemp("gate") / "open"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, gate: Path) -> Iterator[PackageIndex]:
    with running_package_index(tmp_path_factory.mktemp("index")) as index:
        wait = f"    import os, time\n    while not os.path.exists({str(gate)!r}):\n        time.sleep(0.05)"
        index.add_source_distribution("slow", "1.0", wait)
        yield index


@pytest.fixture(scope="module")
def server(index: PackageIndex, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    cache = tmp_path_factory.mktemp("cache")
    variables = f'UV_DEFAULT_INDEX = "{index.url}", UV_CACHE_DIR = "{cache}"'
    server = RunningServer(
        f'environments.builder = "nobody-has-this"\nenvironments.uv_variables = {{ {variables} }}\n'
    )
    yield server
    server.remove()


@pytest.fixture
def stays(new_page: Callable[..., Page]) -> Iterator[Page]:
    """A page that is looked at from the sending of its form on, and never loaded again."""
    page = new_page()
    loads: list[str] = []
    page.on("load", lambda loaded: loads.append(loaded.url))
    yield page
    assert len(loads) == 2, loads  # that with the form, and the one it leads to


@needs_python
def test_the_log_of_a_build_grows_on_its_page_until_the_environment_is_ready(
    stays: Page, server: RunningServer, gate: Path
) -> None:
    stays.goto(f"{server.url}/environments")
    expect(stays.get_by_text("Each list is installed once, for you.")).to_be_visible()
    stays.get_by_label("Packages").fill("slow==1.0")
    stays.get_by_role("button", name="Build").click()
    log = stays.get_by_role("region", name="Build log")
    expect(log).to_contain_text("Building them from source", timeout=BUILDING_MS)
    expect(stays.get_by_role("heading", level=1)).to_contain_text("building")
    expect(log).not_to_contain_text("The environment is ready")
    expect(stays.get_by_text("no, only you can use it")).to_be_visible()
    gate.touch()
    expect(log).to_contain_text("The environment is ready.", timeout=BUILDING_MS)
    expect(stays.get_by_role("heading", level=1)).to_contain_text("ready", timeout=BUILDING_MS)
    expect(stays.get_by_text("helio run --env @")).to_be_visible()


@needs_python
def test_a_broken_requirement_shows_the_resolvers_words(stays: Page, server: RunningServer) -> None:
    stays.goto(f"{server.url}/environments")
    stays.get_by_label("Packages").fill("there-is-no-such-package==1.0")
    stays.get_by_role("button", name="Build").click()
    expect(stays.get_by_role("heading", level=1)).to_contain_text("failed", timeout=BUILDING_MS)
    expect(stays.locator("pre.why")).to_contain_text("there-is-no-such-package was not found")
    expect(stays.locator("main")).not_to_contain_text("Traceback")


@needs_root
@needs_podman
def test_the_log_of_an_image_grows_on_its_page_until_it_is_ready(stays: Page, server: RunningServer) -> None:
    import_test_image(server.home, "root")
    stays.goto(f"{server.url}/images")
    stays.get_by_label("Name").fill("seen:1")
    stays.get_by_label("Containerfile").fill(
        f"FROM {TEST_IMAGE}\nRUN echo one-of-two; sleep 2\nRUN echo two-of-two\n"
    )
    stays.get_by_role("button", name="Build").click()
    log = stays.get_by_role("region", name="Build log")
    expect(log).to_contain_text("one-of-two", timeout=BUILDING_MS)
    expect(log).to_contain_text("The image is ready.", timeout=BUILDING_MS)
    expect(stays.get_by_role("heading", level=1)).to_contain_text("ready", timeout=BUILDING_MS)
    expect(stays.get_by_text("helio run --env image:seen:1")).to_be_visible()
