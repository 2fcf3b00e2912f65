"""All pages write counts, sizes and percentages in the same way: `2 jobs`, `16 GiB`, `78%`."""

import re
from collections.abc import Iterator
from pathlib import Path

import heliostat

SOURCES = Path(heliostat.__file__).parent
TEMPLATES = sorted((SOURCES / "web" / "templates").rglob("*.html"))
SENTENCES = sorted(path for part in ("web", "services", "scheduling") for path in (SOURCES / part).rglob("*.py"))
NOUN = "jobs|nodes|GPUs|CPUs|users|projects|replicas|reservations|runs|tasks|attempts|files|cells|members|days"
COUNT = re.compile(rf"(?:\| (?:number|length)|count) }}}}(?:</\w+>)? (?:{NOUN})\b")
FIGURE = re.compile(rf"ui\.figure\(\"(?:[\w ]* )?(?:{NOUN})\b")
UNIT = re.compile(r"\} [KMGT]B\b|\d [KMGT]B\b|\} %[^}%]|\d %[ ,.;)\"]")


def _lines(paths: list[Path], *patterns: re.Pattern[str]) -> Iterator[str]:
    for path in paths:
        for line in path.read_text().splitlines():
            if any(pattern.search(line) for pattern in patterns):
                yield f"{path.relative_to(SOURCES)}: {line.strip()}"


def test_a_noun_agrees_with_its_number() -> None:
    """With the filters `plural` and `noun`."""
    assert list(_lines(TEMPLATES, COUNT, FIGURE)) == []


def test_units_are_binary_and_percentages_have_no_blank() -> None:
    assert list(_lines(TEMPLATES + SENTENCES, UNIT)) == []
