"""What a person can use is documented: a command, setting, endpoint or variable that is not fails the suite."""

import importlib
import inspect
import os
import pkgutil
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest.mock import MagicMock

import pytest

from heliostat import client
from heliostat.api.app import create_app
from heliostat.cli.command_catalogue import COMMANDS
from heliostat.cli.command_tree import EXIT_CODES, build_root_command
from heliostat.client import Client
from heliostat.config.reference import render_settings_page
from heliostat.engines.job_variables import RunAsUser
from heliostat.engines.local.payload_script import PayloadContext, base_variables, task_variables
from heliostat.models import Attempt, Job, JobSpec, JobState, Resources, TaskPlacement

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _section(text: str, heading: str) -> str | None:
    """What stands under a heading, up to the next one of any depth."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else None


def _commands() -> Iterator[tuple[str, Any]]:
    """Every command that can be typed, with the words that lead to it."""
    root = build_root_command()
    for name in COMMANDS:
        yield from _leaves(name, root.get_command(None, name))


def _leaves(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Itself, unless it is nothing but a name for those below it; and those."""
    below = getattr(command, "commands", None)
    if below is None or command.params:
        yield words, command
    for word, leaf in (below or {}).items():
        yield from _leaves(f"{words} {word}", leaf)


COMMAND_TREE = dict(_commands())


@pytest.mark.parametrize("words", COMMAND_TREE)
def test_every_command_is_documented_with_all_its_options(words: str) -> None:
    section = _section(_read("docs/cli.md"), f"helio {words}")
    assert section is not None, f"docs/cli.md has no heading `helio {words}`"
    options = [name for param in COMMAND_TREE[words].params for name in (*param.opts, *param.secondary_opts)]
    missing = [name for name in options if name.startswith("-") and f"`{name}" not in section]
    assert not missing, f"docs/cli.md, helio {words}: {missing}"


def test_no_command_is_documented_that_does_not_exist() -> None:
    headings = re.findall(r"^### helio (.+)$", _read("docs/cli.md"), re.MULTILINE)
    assert sorted(headings) == sorted(COMMAND_TREE)


def test_no_option_is_documented_that_does_not_exist() -> None:
    text = _read("docs/cli.md")
    for words, command in COMMAND_TREE.items():
        known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
        shown = set(re.findall(r"^(?:\| )?`(--[a-z-]+)", _section(text, f"helio {words}") or "", re.MULTILINE))
        assert shown <= known, f"helio {words}: {sorted(shown - known)}"


def test_every_exit_code_is_documented() -> None:
    section = _section(_read("docs/cli.md"), "Exit codes")
    assert section is not None
    codes = {1, 124, 125, 130, *EXIT_CODES.values()}
    assert not {code for code in codes if f"| {code} |" not in section}


def test_the_page_of_settings_is_that_of_the_code() -> None:
    advice = "python -m heliostat.config.reference > docs/settings.md"
    assert _read("docs/settings.md") == render_settings_page(), advice


def test_every_endpoint_is_documented() -> None:
    text = _read("docs/api.md")
    missing = [endpoint for endpoint in _endpoints() if f"`{endpoint}`" not in text]
    assert not missing, f"docs/api.md: {missing}"


def test_no_endpoint_is_documented_that_does_not_exist() -> None:
    shown = set(re.findall(r"`((?:GET|POST|PUT|PATCH|DELETE) /[^`\s?]*)`", _read("docs/api.md")))
    assert not shown - set(_endpoints())


def test_every_environment_variable_of_a_job_is_documented() -> None:
    section = _section(_read("docs/researchers.md"), "Environment of a job")
    assert section is not None
    missing = [name for name in _job_environment() if f"`{name}`" not in section]
    assert not missing, f"docs/researchers.md: {missing}"


def test_every_verb_of_the_python_client_is_documented() -> None:
    text = _read("docs/researchers.md") + _read("docs/admins.md")
    missing = [verb for verb in _public(Client) if f"`{verb}`" not in text and f".{verb}(" not in text]
    for noun, verbs in vars(Client()).items():
        if not noun.startswith("_"):
            row = next((line for line in text.splitlines() if line.startswith(f"| `client.{noun}` |")), "")
            missing += [f"{noun}.{one}" for one in _public(type(verbs)) if not re.search(rf"`{one}\b", row)]
    assert not missing, f"docs: the client's verbs {missing}"


def test_every_public_method_of_the_python_client_has_a_docstring() -> None:
    modules = [
        importlib.import_module(f"heliostat.client.{found.name}")
        for found in pkgutil.iter_modules(client.__path__)
    ]
    missing = [
        f"{cls.__name__}.{name}"
        for module in modules
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if cls.__module__ == module.__name__ and not cls.__name__.startswith("_")
        for name, member in vars(cls).items()
        if not name.startswith("_") and isinstance(member, property | FunctionType) and not member.__doc__
    ]
    assert not missing, f"without a docstring: {missing}"


def test_type_checkers_read_the_types_of_the_package() -> None:
    assert (ROOT / "src/heliostat/py.typed").exists()


def _public(cls: type) -> list[str]:
    return [name for name, _ in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    broken = [link for link in _LINK.findall(text) if not _resolves(page, link)]
    assert not broken, f"{page.name}: {broken}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        links = (link.partition("#")[0] for link in _LINK.findall(_FENCE.sub("", page.read_text("utf-8"))))
        targets = [Path(os.path.normpath(page.parent / link)) for link in links if link and "://" not in link]
        waiting += [target for target in targets if target.suffix == ".md" and target.exists()]
    assert not {str(page.relative_to(ROOT)) for page in PAGES} - {str(page.relative_to(ROOT)) for page in reached}


def test_decisions_have_a_number_each_a_row_in_the_index_and_their_three_parts() -> None:
    folder = ROOT / "docs" / "decisions"
    records = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    assert len({path.name[:4] for path in records}) == len(records)
    assert re.findall(r"^\| \[\d{4}\]\((.+?)\)", (folder / "README.md").read_text(encoding="utf-8"), re.M) == [
        path.name for path in records
    ]
    for path in records:
        text = path.read_text(encoding="utf-8")
        for part in ("Context", "Decision", "Consequences"):
            assert _section(text, part), f"{path.name} has no {part}"


def _resolves(page: Path, link: str) -> bool:
    target, _, anchor = link.partition("#")
    if "://" in target or target.startswith("mailto:"):
        return True
    file = Path(os.path.normpath(page.parent / target)) if target else page
    if not file.exists():
        return False
    return not anchor or anchor in _anchors(file.read_text(encoding="utf-8"))


def _anchors(text: str) -> set[str]:
    """As GitHub and most renderers make them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def _endpoints() -> list[str]:
    """`GET /api/v1/jobs`… of the real application, taken from its description of itself."""
    app = create_app(MagicMock(), {})
    paths = app.openapi()["paths"]
    return [f"{method.upper()} {path}" for path, methods in paths.items() for method in methods]


def _job_environment() -> dict[str, str]:
    """All that a job may find: as an element of an array, of several tasks, with a part of a GPU."""
    job = Job(
        id=1,
        kind="batch",
        name="train",
        state=JobState.RUNNING,
        user="anna",
        unix_user="anna",
        project="default",
        resources=Resources(gpus=0.5),
        spec=JobSpec(),
        submitted_at=datetime(2026, 1, 1, tzinfo=UTC),
        array_id=1,
        array_index=0,
        attempt=1,
    )
    person = RunAsUser("anna", 1000, 1000, "/home/anna", "/bin/sh")
    task = TaskPlacement("gpu1", ("GPU-1",))
    attempt = Attempt("1.1", job, "gpu1", task.devices, (task, task))
    places = PayloadContext("/", None, "/", "mark", "/saved", 81920, 20000)
    return base_variables(attempt, person, places) | task_variables(task, 0)
