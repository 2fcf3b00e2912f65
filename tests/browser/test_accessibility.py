"""Everybody can read and use every page, in light, in dark and on a phone.

Two judges: axe-core, where `scripts/install-test-parts` could get it from npm, and a check of our own, always.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from browser.addresses import PAGES
from integration.running_server import RunningServer

LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 375, "height": 700}, "has_touch": True},
}
OWN = Path(__file__).with_name("accessibility.js").read_text()
ROOT = Path(__file__).parents[2]
AXE = Path(os.environ.get("AXE") or ROOT / ".venv/axe/node_modules/axe-core/axe.min.js")
_TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
_ALL_RULES = {"type": "tag", "values": _TAGS}
# The same document in other colours, or in another width: only rules that look at those find something else there.
_RULES = {
    "dark": {"type": "rule", "values": ("color-contrast",)},
    "phone": {"type": "rule", "values": ("target-size", "scrollable-region-focusable", "meta-viewport")},
}
_ASK_AXE = """async (rules) => (await axe.run(document, { runOnly: rules, resultTypes: ["violations"] }))
  .violations
  .filter((one) => one.impact === "serious" || one.impact === "critical")
  .flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 120)} (${node.failureSummary})`))"""


def ask_axe(page: Page, rules: dict[str, object] = _ALL_RULES) -> list[str]:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: scripts/install-test-parts gets it where npm is")
    page.evaluate(AXE.read_text())
    found: list[str] = page.evaluate(_ASK_AXE, rules)
    return found


def ask_ourselves(page: Page) -> list[str]:
    page.keyboard.press("Tab")  # from now on focus is that of a keyboard, which has to be seen
    width = page.viewport_size["width"] if page.viewport_size else 0
    found: list[str] = page.evaluate(OWN, {"touch": width < 600})
    return found


def ask_both(page: Page, look: str) -> list[str]:
    """Axe first, who leaves the page as it was; without it, its own test below is skipped with the reason."""
    rules = _RULES.get(look, _ALL_RULES)
    return (ask_axe(page, rules) if AXE.exists() else []) + ask_ourselves(page)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("look", LOOKS)
def test_nothing_on_any_page_keeps_anybody_out(
    new_page: Callable[..., Page], server: RunningServer, look: str
) -> None:
    for state in ("true", "sleep 600"):
        server.submit(command=state.split(), name=f"{look} {state}", gpus=1)
    page = new_page(**LOOKS[look])
    faults = {}
    for path in PAGES:
        page.goto(server.url + path)
        if found := ask_both(page, look):
            faults[path] = found
    page.context.clear_cookies()
    page.goto(server.url + "/login")
    faults |= {"/login": found} if (found := ask_both(page, look)) else {}
    assert not faults


PLANTED = {
    "a button without a name": "<button></button>",
    "a field without a label": "<input name=nameless>",
    "an id that is there twice": "<i id=twice>a</i><i id=twice>b</i>",
    "text that is hardly seen": "<p class=pale>pale</p>",
    "a picture without words": "<img src='data:,'>",
}


@pytest.mark.parametrize("fault", PLANTED)
def test_our_own_check_finds_what_is_wrong(page: Page, fault: str) -> None:
    before = ask_ourselves(page)
    _plant(page, PLANTED[fault])
    assert len(ask_ourselves(page)) > len(before), fault


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("document.documentElement.lang = ''", "language"),
        ("document.title = ''", "title"),
        ("document.querySelector('main').insertAdjacentHTML('beforeend', '<h4>deep</h4>')", "level 4"),
        ("document.querySelector('main').setAttribute('aria-describedby', 'nothing')", "leads nowhere"),
        ("document.querySelector('main').setAttribute('role', 'nonsense')", "unknown role"),
        ("document.querySelector('nav').removeAttribute('aria-label'); document.querySelector('main').append("
         "document.querySelector('nav').cloneNode(true))", "navigation"),
        ("document.querySelector('footer').remove()", "footer"),
    ],
)  # fmt: skip
def test_our_own_check_finds_what_is_wrong_with_the_whole(page: Page, script: str, said: str) -> None:
    page.evaluate(script)
    assert any(said in fault for fault in ask_ourselves(page))


def test_our_own_check_finds_what_is_too_small_too_wide_or_without_focus(new_page: Callable[..., Page]) -> None:
    page = new_page(**LOOKS["phone"])
    sheet = "button.tiny { all: unset; display: inline-block; width: 9px; height: 9px } .broad { width: 900px }"
    page.evaluate("""(rules) => { const sheet = new CSSStyleSheet(); sheet.replaceSync(rules);
        document.adoptedStyleSheets = [sheet]; }""", sheet)  # fmt: skip
    _plant(page, "<p><button class=tiny aria-label=a></button><button class=tiny aria-label=b></button></p>")
    _plant(page, "<div class=broad>broad</div>")
    said = "\n".join(ask_ourselves(page))
    assert "9 by 9 pixels" in said
    assert "wider than the window" in said
    assert "focus cannot be seen" in said


def test_axe_finds_what_is_wrong(page: Page) -> None:
    _plant(page, PLANTED["a button without a name"])
    assert any("button-name" in fault for fault in ask_axe(page))


def _plant(page: Page, html: str) -> None:
    page.evaluate("""(html) => { const sheet = new CSSStyleSheet();
        sheet.replaceSync(".pale { color: #eee !important; background: #fff !important }");
        document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
        document.querySelector("main").insertAdjacentHTML("beforeend", html); }""", html)  # fmt: skip
