"""`helio config`: check, show and explain the settings of this server. Works while the server is down."""

import json
import shutil
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.command_tree import command_group
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

config = command_group("Check, show and explain the settings of this server.")


@config.command()
def check(
    file: Annotated[
        Path | None, typer.Argument(help="File to check. Default: cluster.toml of this server.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check a settings file before using it.

    Prints each problem and how to fix it. Exits with 1 if there is a problem.
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
    """Show every setting with its value and its source.

    Values come from the current file and from the options of the running server.
    """
    from heliostat.config import find_home, load_settings
    from heliostat.config.effective_settings import effective_settings

    home = find_home()
    settings = effective_settings(load_settings(home, _options_of_server(home)))
    if as_json:
        print_json(
            {
                "file": str(home.config_file),
                "settings": [{"key": setting.key, **asdict(setting)} for setting in settings],
            }
        )
        return
    columns = (Column("SETTING"), Column("VALUE", shrinkable=True), Column("SOURCE"))
    print_table(columns, [(setting.key, setting.value_text, setting.source) for setting in settings])


@config.command()
def explain(
    key: Annotated[
        str, typer.Argument(help="containers.keep_days, or keep_days if only one section has that setting.")
    ],
    as_json: JsonFlag = False,
) -> None:
    """Explain a setting: its meaning, allowed values and default."""
    from heliostat.config.effective_settings import explain_setting as explanation_of

    setting = explanation_of(key)
    if as_json:
        print_json({"key": f"{setting.section}.{setting.name}", **asdict(setting)})
        return
    print(f"{setting.name} in [{setting.section}]")
    print(textwrap.fill(setting.help, min(shutil.get_terminal_size().columns, 100)))
    print()
    facts = [
        ("type", setting.type),
        ("values", setting.values or None),
        ("default", setting.default or "not set"),
        ("example", setting.example or None),
        ("more", f"docs/{setting.see}" if setting.see else None),
    ]
    print_fields(facts)


def _options_of_server(home: "Home") -> dict[str, dict[str, Any]]:
    """Options of `helio up`, which override the file while the server runs."""
    from heliostat.cli.server_process import read_server_status

    if not read_server_status(home):
        return {}
    try:
        options: dict[str, dict[str, Any]] = json.loads(home.status_file.read_text(encoding="utf-8"))["options"]
    except (OSError, ValueError, KeyError):
        return {}
    return options
