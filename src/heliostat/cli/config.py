"""`helio config`: check, show and explain the settings of this machine; needs no server."""

import json
import shutil
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.app import command_group
from heliostat.cli.output import (
    Column,
    JsonFlag,
    StateCell,
    format_cell,
    format_count,
    print_fields,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from heliostat.config import Home

config = command_group("The settings of this machine: check, show, explain.")


@config.command()
def check(
    file: Annotated[Path | None, typer.Argument(help="cluster.toml of this machine unless given.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a file before it is used.

    Says all that is wrong with it and what to write instead. Exits with 1 when there is a problem.
    """
    from heliostat.config import find_home
    from heliostat.config.load import check_config

    path = file or find_home().config_file
    problems = check_config(path, may_be_missing=file is None)
    if as_json:
        print_json({"file": str(path), "problems": [asdict(problem) for problem in problems]})
    else:
        for problem in problems:
            print(f"{format_cell(StateCell('problem'))}  {problem.message}")
            print(f"    {problem.hint}")
        print(f"{path}: {format_count(len(problems), 'problem') if problems else 'no problems'}.")
    raise typer.Exit(1 if problems else 0)


@config.command()
def show(as_json: JsonFlag = False) -> None:
    """Show every setting, its value and where it comes from.

    From the file as it is now, with the options that a running server was started with.
    """
    from heliostat.config import find_home, load_settings
    from heliostat.config.effective_settings import effective_settings

    home = find_home()
    found = effective_settings(load_settings(home, _options_of_server(home)))
    if as_json:
        print_json({"file": str(home.config_file), "settings": [{"key": one.key, **asdict(one)} for one in found]})
        return
    columns = (Column("SETTING"), Column("VALUE", shrinkable=True), Column("FROM"))
    print_table(columns, [(one.key, one.value_text, one.source) for one in found])


@config.command()
def explain(
    key: Annotated[str, typer.Argument(help="containers.keep_days; or keep_days, if one section has it.")],
    as_json: JsonFlag = False,
) -> None:
    """Say what a setting means, what it may be, and what it is unless set."""
    from heliostat.config.effective_settings import explain_setting as explanation_of

    one = explanation_of(key)
    if as_json:
        print_json({"key": f"{one.section}.{one.name}", **asdict(one)})
        return
    print(f"{one.name} in [{one.section}]")
    print(textwrap.fill(one.help, min(shutil.get_terminal_size().columns, 100)))
    print()
    facts = [
        ("type", one.type),
        ("values", one.values or None),
        ("default", one.default or "not set"),
        ("example", one.example or None),
        ("more", f"docs/{one.see}" if one.see else None),
    ]
    print_fields(facts)


def _options_of_server(home: "Home") -> dict[str, dict[str, Any]]:
    """Those of `helio up` that win over the file while the server runs."""
    from heliostat.cli.server_process import read_server_status

    if not read_server_status(home):
        return {}
    try:
        options: dict[str, dict[str, Any]] = json.loads(home.status_file.read_text(encoding="utf-8"))["options"]
    except (OSError, ValueError, KeyError):
        return {}
    return options
