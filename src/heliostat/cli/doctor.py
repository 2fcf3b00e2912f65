"""`helio doctor`: checks the installation, with or without a running server."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import JsonFlag, StateCell, format_cell, format_count, print_json, sanitize_text
from heliostat.errors import Forbidden, HeliostatError, NotAuthenticated, ServerUnreachable

if TYPE_CHECKING:
    from heliostat.client import Client


def doctor(
    probe: Annotated[
        bool, typer.Option("--probe", help="On Slurm: also run a small job on a node of each partition.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Check the installation and suggest fixes.

    Exits with 1 if there is a problem.
    """
    findings = collect_findings(connect(), probe)
    problems = sum(finding["level"] == "problem" for finding in findings)
    if as_json:
        print_json({"findings": findings})
    else:
        for finding in findings:
            print_finding(finding)
        print(f"\n{format_count(problems, 'problem')}." if problems else "\nNo problems: jobs can run.")
    raise typer.Exit(1 if problems else 0)


def collect_findings(client: "Client", probe: bool = False) -> list[dict[str, Any]]:
    """Findings of this command, then those of the server."""
    try:
        status = client.status()
    except ServerUnreachable as error:
        unreachable = _finding("server", "problem", error.message, error.hint)
        return [unreachable, *(_check_locally(probe) if client.address.is_local_socket else [])]
    except HeliostatError as error:
        return [_finding("server", "problem", error.message, error.hint)]
    running = f"Version {status['version']} is running at {client.address} with engine {status['engine']}."
    return [_finding("server", "ok", running), *_version(status["version"]), *_check_on_server(client, probe)]


def _check_on_server(client: "Client", probe: bool) -> list[dict[str, Any]]:
    try:
        return [dict(finding) for finding in client.doctor(probe=probe)]
    except (Forbidden, NotAuthenticated) as error:
        hint = "All checks need an admin: sudo helio doctor."
        return [_finding("examination", "warning", error.message, hint)]


def _check_locally(probe: bool) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from heliostat.config import find_home, load_settings
    from heliostat.doctor import check_installation

    findings = [asdict(finding) for finding in check_installation(load_settings(find_home()))]
    if probe:
        findings.append(_finding("examination", "warning", "Only a running server can probe nodes.", "helio up"))
    return findings


def _version(server_version: str) -> list[dict[str, Any]]:
    from heliostat import __version__

    if server_version == __version__:
        return []
    message = f"This command has version {__version__}, the server has version {server_version}."
    return [_finding("version", "warning", message, "Restart the server: helio down, helio up --background.")]


def _finding(check: str, level: str, message: str, hint: str | None = None) -> dict[str, Any]:
    return {"check": check, "level": level, "message": message, "hint": hint}


def print_finding(finding: dict[str, Any]) -> None:
    message = sanitize_text(" ".join(finding["message"].split()))  # may quote what an exporter on a node responds
    print(f"{format_cell(StateCell(finding['level']))}  {finding['check']}: {message}")
    if finding["hint"] and finding["level"] != "ok":
        print(f"    {finding['hint']}")
