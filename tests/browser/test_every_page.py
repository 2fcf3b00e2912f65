"""What holds for every page."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Response

from browser.addresses import PAGES
from integration.running_server import RunningServer

LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 375, "height": 700}},
    "wide": {"viewport": {"width": 2560, "height": 1200}},
}
_CONTRASTS = """() => {
  const luminance = ([r, g, b]) => {
    const part = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = numbers(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.nodeValue.trim());
    if (!says || !element.checkVisibility() || element.closest("svg, .unseen, option, .skip, [disabled]")) continue;
    const style = getComputedStyle(element);
    const [a, b] = [luminance(numbers(style.color)), luminance(ground(element))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) poor.push(`${element.className} "${element.textContent.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
  }
  return poor;
}"""  # noqa: E501
_NAMELESS = """() => [...document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea")]
  .filter((one) => one.checkVisibility())
  .filter((one) => !(one.textContent.trim() || one.getAttribute("aria-label") || one.labels?.length))
  .map((element) => element.outerHTML.slice(0, 120))"""
_TWICE = """() => { const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  return ids.filter((id, place) => ids.indexOf(id) !== place); }"""


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("path", PAGES)
def test_every_page_fits_and_can_be_read(
    same_page: Callable[..., Page], server: RunningServer, path: str, look: str
) -> None:
    page = same_page(**LOOKS[look])
    page.goto(server.url + path)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it is wider than the window"
    assert page.evaluate(_CONTRASTS) == []
    assert page.evaluate(_NAMELESS) == []
    assert page.evaluate(_TWICE) == []
    assert page.locator("h1").count() == 1
    assert page.locator("main").count() == 1


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_small(same_page: Callable[..., Page], server: RunningServer, path: str) -> None:
    page = same_page()
    answers: list[Response] = []

    def note(answer: Response) -> None:
        answers.append(answer)

    page.on("response", note)
    page.goto(server.url + path, wait_until="load")
    page.remove_listener("response", note)
    sizes = [len(answer.body()) for answer in answers if "/live" not in answer.url]
    assert 1000 < sum(sizes) < 100_000


@pytest.mark.parametrize("path", PAGES)
def test_every_page_works_without_scripts(
    same_page: Callable[..., Page], server: RunningServer, path: str
) -> None:
    page = same_page(java_script_enabled=False)
    page.goto(server.url + path)
    assert page.locator("h1").is_visible()
    assert page.locator("nav a").first.is_visible()
