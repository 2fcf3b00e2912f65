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

from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser.addresses import PAGES

LOOKS = {
    "light": (1280, 800, "light"),
    "dark": (1280, 800, "dark"),
    "phone": (375, 740, "light"),
    "wide": (2560, 1200, "light"),
}
WARM_UP_SECONDS = 20.0
HELIO = [sys.executable, "-m", "heliostat.cli.main"]


def main(folder: Path, paths: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with demo() as home, sync_playwright() as playwright:
        time.sleep(WARM_UP_SECONDS)  # so that something runs, waits and has ended
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for look in LOOKS:
            take(browser, home, folder, look, paths)
        browser.close()


def take(browser: Browser, home: str, folder: Path, look: str, paths: list[str]) -> None:
    width, height, scheme = LOOKS[look]
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(link(home))
    address = page.url.rstrip("/")
    for path in paths:
        page.goto(address + path)
        page.wait_for_timeout(400)
        name = re.sub(r"\W+", "-", path).strip("-") or "home"
        page.screenshot(path=folder / f"{name}-{look}.png")
        shrink(folder / f"{name}-{look}.png")
    page.context.clear_cookies()
    page.goto(address + "/login")
    page.screenshot(path=folder / f"login-{look}.png")
    shrink(folder / f"login-{look}.png")
    context.close()


@contextlib.contextmanager
def demo() -> Iterator[str]:
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


def link(home: str) -> str:
    environment = {**os.environ, "HELIOSTAT_HOME": home}
    answer = subprocess.run([*HELIO, "web", "--json"], env=environment, capture_output=True, check=True)
    url: str = json.loads(answer.stdout)["url"]
    return url


def shrink(path: Path) -> None:
    """256 colours are plenty for our pages; without pngquant the picture stays as it is."""
    if shutil.which("pngquant"):
        subprocess.run(["pngquant", "--force", "--skip-if-larger", "--output", path, "256", path], check=False)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/screenshots")
    main(target, sys.argv[2:] or [path for path in PAGES if "nothing" not in path])
