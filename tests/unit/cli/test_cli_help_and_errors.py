"""The command line itself: help, speed, mistakes."""

import inspect
import os
import subprocess
import sys
from importlib import import_module

import pytest
import typer
from typer.main import get_command

from heliostat.cli.command_catalogue import COMMANDS

HEAVY = ("rich", "yaml", "pydantic", "sqlalchemy", "fastapi", "httpx", "numpy")


def loaded_by(*words: str) -> set[str]:
    """Which of the heavy modules a command line imports."""
    code = (
        "import sys; from heliostat.cli.main import main; main(sys.argv[1:]);"
        f"print('LOADED', *[name for name in {(*HEAVY, 'typer')!r} if name in sys.modules])"
    )
    env = {**os.environ, "HELIOSTAT_HOME": "/nonexistent"}
    ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, env=env, check=True)
    return set(ran.stdout.splitlines()[-1].split()[1:])


def test_asking_for_help_imports_nothing_heavy():
    assert loaded_by("--help") == set()


@pytest.mark.parametrize("words", [["ps"], ["run", "--gpus", "1", "--", "true"], ["logs", "1"], ["status"]])
def test_a_command_that_talks_to_the_server_imports_nothing_heavy(words):
    assert loaded_by(*words) == {"typer"}


def test_help_names_every_command(helio):
    ran = helio("--help")
    assert ran.code == 0
    assert all(f"  {name}" in ran.out for name in COMMANDS)
    assert helio().out == ran.out == helio("-h").out


@pytest.mark.parametrize("entry", COMMANDS.values(), ids=COMMANDS)
def test_the_catalogue_says_what_the_command_says_of_itself(entry):
    module, _, attribute = entry.entry_point.partition(":")
    found = getattr(import_module(f"heliostat.cli.{module}"), attribute)
    said = found.info.help if isinstance(found, typer.Typer) else inspect.getdoc(found).splitlines()[0]
    assert said == entry.summary


def commands_with_json():
    for entry in COMMANDS.values():
        module, _, attribute = entry.entry_point.partition(":")
        found = getattr(import_module(f"heliostat.cli.{module}"), attribute)
        if not isinstance(found, typer.Typer):
            yield entry.name, inspect.signature(found).parameters
            continue
        yield from commands_below(entry.name, get_command(found))


def commands_below(words, command):
    for name, below in command.commands.items():
        if hasattr(below, "commands"):
            yield from commands_below(f"{words} {name}", below)
        else:
            yield f"{words} {name}", {param.name for param in below.params}


@pytest.mark.parametrize(("name", "parameters"), list(commands_with_json()))
def test_every_command_knows_json(name, parameters):
    assert "as_json" in parameters or name in ("demo", "ssh", "env shell")  # these are for people


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(helio, name):
    ran = helio(name, "--help")
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: helio {name}")


def test_the_version_is_printed(helio):
    assert helio("--version").out.startswith("heliostat 0.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnu"], "No such command 'rnu' (did you mean run?)."),
        (["xyzzy"], "No such command 'xyzzy'."),
        (["user", "lisst"], "No such command 'lisst' (did you mean list?)."),
        (["ps", "--limit", "x"], "'x' is not a whole number"),
        (["ps", "--limit", "0"], "at least 1"),
        (["run"], "The command is missing"),
        (["run", "--gpux", "1", "true"], "No such option: --gpux"),
        (["run", "--sweep", "lr=1,2", "--array", "0-3", "true"], "A sweep is an array already"),
        (["run", "--env", "NOT_SET_HERE", "true"], "NOT_SET_HERE is not set here"),
        (["run", "--grace", "soon", "true"], "'soon' is not a duration"),
        (["share", "--since", "soon"], "'soon' is not a day; write 14d or 2026-11-01"),
        (["share", "--since", "14"], "'14' is not a day"),
        (["report", "waste", "--by", "gpu-type"], "--by: 'gpu-type' is not one of department, project, user."),
        (["report", "--by", "foo"], "--by: 'foo' is not one of department, project, user, gpu-type."),
        (
            ["token", "create", "--name", "x", "--scope", "bogus"],
            "'bogus' is not one of read, submit, metrics, alerts, full.",
        ),
        (["run", "--script", "/nonexistent"], "cannot be read"),
        (["submit", "/nonexistent"], "cannot be read"),
        (["cancel"], "Name the jobs"),
        (["node"], "Missing command"),
        (["node", "drain", "gpu1"], "Missing option '--reason'"),
        (["up", "--port", "99999"], "at most 65535"),
        (["login", "ftp://x"], "not an address"),
    ],
)
def test_a_mistake_is_one_line_and_a_hint(helio, words, message):
    ran = helio(*words)
    lines = ran.err.splitlines()
    assert ran.code == 2
    assert lines[0].startswith("helio: ")
    assert message in lines[0]
    assert lines[1].startswith("hint: ")
    assert len(lines) == 2


def test_no_server_says_how_to_start_one(helio):
    ran = helio("ps")
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.splitlines()[1] == "hint: Start one with `helio up`."


def test_an_unexpected_failure_is_no_traceback(helio, monkeypatch):
    monkeypatch.setattr("heliostat.cli.connection.connect", lambda: 1 / 0)
    monkeypatch.setattr("heliostat.cli.jobs.connect", lambda: 1 / 0)
    ran = helio("ps")
    assert ran.code == 1
    assert ran.err.startswith("helio: ZeroDivisionError: division by zero\nhint: ")
