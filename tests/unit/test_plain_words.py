"""Words that readers stumble over do not come back into names, messages, pages and documentation."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BANNED = {
    r"(?<!there )is no(?= (?!longer|more|other|need|reason))": "is not a",
    r"mend(s|ed|ing)?": "fix",
    r"made up": "simulated, synthetic, generated",
    r"told": "reported, notified, sent, passed",
    r"com(e|es|ing) in|came in": "log in, arrive",
    r"somebody": "a user, another process",
    r"nobody": "no user, no process",
    r"whoever": "the user who, the process that",
    r"whom": "who, the user",
    r"fore(see|seen|told|tell)": "forecast",
    r"lately": "recently",
    r"one's own|ones own": "your own, the user's own",
    r"sen[dt] away": "preempt",
    r"hand(s|ed|ing)? over|hand-over|handed-over": "dispatch, pass, give",
    r"the rest is of": "other amounts are per task",
    r"anew": "again, new",
    r"wish(es)?": "request",
    r"foreseeable": "forecast",
    r"tend(s|ed|ing)?": "reconcile, watch",
    r"be told|is told": "be notified",
    r"not ended well": "failed",
    r"good news": "announcement",
}
"""What is not written, as a pattern of whole words, and what is written instead."""

PATTERN = re.compile(r"\b(?:" + "|".join(f"(?:{pattern})" for pattern in BANNED) + r")(?!\w)", re.IGNORECASE)


def texts_of_python(path: Path) -> Iterator[tuple[int, str]]:
    """Its string literals and comments."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def texts(path: Path) -> Iterator[tuple[int, str]]:
    if path.suffix == ".py":
        yield from texts_of_python(path)
    else:
        yield from enumerate(path.read_text().splitlines(), 1)


def files() -> list[Path]:
    source = ROOT / "src" / "heliostat"
    found = [path for path in source.rglob("*") if path.suffix in {".py", ".html", ".js", ".sh"}]
    found += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    found += (ROOT / "docs").rglob("*.md")
    return sorted(path for path in found if "versions" not in path.parts)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_text_uses_plain_words(path: Path) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {hit[0]!r}"
        for line, text in texts(path)
        for hit in PATTERN.finditer(text)
    ]
    assert not found, "\n".join([*found, "Say it in plain words: see BANNED in this file."])


def test_the_pattern_finds_what_it_bans() -> None:
    assert PATTERN.search("Nobody can tell")
    assert PATTERN.search("x is no number")
    assert PATTERN.search("Mend it.")
    assert not PATTERN.search("There is no node gpu7. It is no longer up.")
