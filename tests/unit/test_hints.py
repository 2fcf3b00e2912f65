"""Whoever is told what is wrong is also told what to do."""

import ast
from collections.abc import Iterator
from pathlib import Path

import heliostat
from heliostat import errors
from heliostat.errors import HeliostatError

ROOT = Path(heliostat.__file__).parent
NEED_HINTS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, HeliostatError) and kind.default_hint is None
}


def without_hint(source: str) -> Iterator[int]:
    """The lines."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Raise) or not isinstance(node.exc, ast.Call):
            continue
        called = node.exc
        if not isinstance(called.func, ast.Name) or called.func.id not in NEED_HINTS:
            continue
        if len(called.args) < 2 and not any(word.arg in ("hint", None) for word in called.keywords):
            yield node.lineno


def test_every_error_that_is_raised_names_the_next_step() -> None:
    found = {
        f"{file.relative_to(ROOT)}:{line}"
        for file in ROOT.rglob("*.py")
        for line in without_hint(file.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_a_hint_may_be_given_by_name_or_as_the_second_word() -> None:
    source = (
        'raise Conflict("a", "b")\nraise Conflict("a", hint="b")\nraise Conflict("a")\nraise ValueError("a")\n'
    )
    assert list(without_hint(source)) == [3]


def test_an_engine_that_does_not_answer_has_a_usual_hint() -> None:
    assert errors.EngineUnavailable("It is away.").hint
