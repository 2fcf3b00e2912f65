"""`helio doctor`: works with the server and without it."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import JsonFlag, StateCell, format_cell, format_count, print_json
from heliostat.errors import Forbidden, HeliostatError, NotAuthenticated, ServerUnreachable

if TYPE_CHECKING:
    from heliostat.client import Client


def doctor(
    probe: Annotated[
        bool, typer.Option("--probe", help="On Slurm: look from a node of each partition too, with a tiny job.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Find out what is wrong and what to do about it.

    Exits with 1 when there is a problem.
    """
    findings = collect_findings(connect(), probe)
    problems = sum(finding["level"] == "problem" for finding in findings)
    if as_json:
        print_json({"findings": findings})
    else:
        for finding in findings:
            _print(finding)
        print(f"\n{format_count(problems, 'problem')}." if problems else "\nAll is well enough to run jobs.")
    raise typer.Exit(1 if problems else 0)


def collect_findings(client: "Client", probe: bool = False) -> list[dict[str, Any]]:
    """What can be seen from here, then what the server sees of itself."""
    try:
        status = client.status()
    except ServerUnreachable as error:
        mine = _finding("server", "problem", error.message, error.hint)
        return [mine, *(_examine_here(probe) if client.address.is_local_socket else [])]
    except HeliostatError as error:
        return [_finding("server", "problem", error.message, error.hint)]
    running = f"Version {status['version']} answers at {client.address}, engine {status['engine']}."
    return [_finding("server", "ok", running), *_version(status["version"]), *_ask_server(client, probe)]


def _ask_server(client: "Client", probe: bool) -> list[dict[str, Any]]:
    try:
        return [dict(finding) for finding in client.doctor(probe=probe)]
    except (Forbidden, NotAuthenticated) as error:
        hint = "An admin sees the rest: sudo helio doctor."
        return [_finding("examination", "warning", error.message, hint)]


def _examine_here(probe: bool) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from heliostat.config import find_home, load_settings
    from heliostat.doctor import check_installation as examine_installation

    found = [asdict(finding) for finding in examine_installation(load_settings(find_home()))]
    if probe:
        found.append(_finding("examination", "warning", "Nodes are probed by a running server only.", "helio up"))
    return found


def _version(of_server: str) -> list[dict[str, Any]]:
    from heliostat import __version__

    if of_server == __version__:
        return []
    message = f"This command is version {__version__}, the server {of_server}."
    return [_finding("version", "warning", message, "Restart the server: helio down, helio up --background.")]


def _finding(check: str, level: str, message: str, hint: str | None = None) -> dict[str, Any]:
    return {"check": check, "level": level, "message": message, "hint": hint}


def _print(finding: dict[str, Any]) -> None:
    print(f"{format_cell(StateCell(finding['level']))}  {finding['check']}: {finding['message']}")
    if finding["hint"] and finding["level"] != "ok":
        print(f"    {finding['hint']}")
