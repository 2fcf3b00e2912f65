"""Pictures of every page, in light, dark, on a phone and on a wide screen, taken from a demo that runs meanwhile.

    make screenshots                       # into docs/screenshots
    .venv/bin/python scripts/screenshots.py FOLDER [PATH…]

Needs playwright and chromium, like the tests in tests/browser.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Error, Page, sync_playwright

from heliostat.web.routes import route_paths as routes

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser.addresses import PAGES

VIEWPORTS = {
    "light": (1280, 800, "light"),
    "dark": (1280, 800, "dark"),
    "phone": (375, 740, "light"),
    "wide": (2560, 1200, "light"),
}
_ADDRESSES = "all => all.map((a) => a.getAttribute('href'))"
WARM_UP_SECONDS = 20.0
HELIO = [sys.executable, "-m", "heliostat.cli.main"]


def main(folder: Path, paths: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with running_demo() as home, sync_playwright() as playwright:
        time.sleep(WARM_UP_SECONDS)  # so that something runs, waits and has ended
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for look in VIEWPORTS:
            take_screenshots(browser, home, folder, look, paths)
        browser.close()


def take_screenshots(browser: Browser, home: str, folder: Path, look: str, paths: list[str]) -> None:
    width, height, scheme = VIEWPORTS[look]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(login_link(home))
    address = page.url.rstrip("/")
    links: list[str] = []
    for path in paths:
        if take_screenshot(page, address + path, folder / f"{file_stem_for_path(path)}-{look}.png"):
            links += page.locator("main a[href^='/']").evaluate_all(_ADDRESSES)
    for route, path in pages_found_by_links(links, paths).items():
        take_screenshot(page, address + path, folder / f"{file_stem_for_path(route)}-{look}.png")
    page.context.clear_cookies()
    page.goto(address + "/login")
    page.screenshot(path=folder / f"login-{look}.png")
    compress_png(folder / f"login-{look}.png")
    context.close()


def take_screenshot(page: Page, address: str, target: Path) -> bool:
    """False, and a word about it, where there is no page to see."""
    try:
        answer = page.goto(address)
    except Error as error:  # it is not a page but something to keep
        print(f"left out {address}: {error.message.splitlines()[0]}")
        return False
    if answer is None or answer.status != 200 or "html" not in answer.headers.get("content-type", ""):
        print(f"left out {address}: {answer.status if answer else 'no answer'}")
        return False
    page.wait_for_timeout(400)
    page.screenshot(path=target)
    compress_png(target)
    return True


def all_pages() -> list[str]:
    """What the browser tests open, and every other page whose address has no name in it."""
    listed = [path for path in PAGES if "nothing" not in path]
    known = {path.partition("?")[0] for path in listed}
    others = [path for path in routes("GET") if "{" not in path and not path.startswith(("/live", "/login"))]
    return listed + [path for path in others if path not in known]


def pages_found_by_links(links: list[str], taken: list[str]) -> dict[str, str]:
    """For each page whose address has a name in it, the first that some page leads to; none if one was taken."""
    found = {}
    for route in routes("GET"):
        numbered = re.sub(r"\\{[^}]+:job\\}", "[0-9]+", re.escape(route))
        pattern = re.compile(re.sub(r"\\{[^}]+\\}", "[^/?]+", numbered))
        if "{" in route and not any(pattern.fullmatch(path.partition("?")[0]) for path in taken):
            fitting = [link for link in links if pattern.fullmatch(link.partition("?")[0])]
            found |= {route: fitting[0]} if fitting else {}
    return found


def file_stem_for_path(path: str) -> str:
    return re.sub(r"[\W_]+", "-", path).strip("-") or "home"


@contextlib.contextmanager
def running_demo() -> Iterator[str]:
    """A demo's home, while it runs."""
    process = subprocess.Popen([*HELIO, "demo", "--port", "0"], stdout=subprocess.PIPE, text=True)
    home = ""
    for line in process.stdout or ():
        if found := re.search(r"HELIOSTAT_HOME=(\S+)", line):
            home = found[1]
            break
    try:
        deadline = time.monotonic() + 30
        while not Path(home, "server.json").exists():
            if time.monotonic() > deadline:
                sys.exit("the demo did not start")
            time.sleep(0.1)
        yield home
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


def login_link(home: str) -> str:
    environment = {**os.environ, "HELIOSTAT_HOME": home}
    answer = subprocess.run([*HELIO, "web", "--json"], env=environment, capture_output=True, check=True)
    url: str = json.loads(answer.stdout)["url"]
    return url


def compress_png(path: Path) -> None:
    """256 colours are plenty for our pages; without pngquant the picture stays as it is."""
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--skip-if-larger", "--output", path, "256", path], check=False)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/screenshots")
    main(target, sys.argv[2:] or all_pages())
