"""`helio up`, `down` and `status`: start and stop the server on this machine."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.forecast_format import format_forecast_accuracy
from heliostat.cli.output import JsonFlag, print_fields, print_json, print_message
from heliostat.cli.value_format import format_time
from heliostat.errors import Conflict, ServerUnreachable

if TYPE_CHECKING:
    from heliostat.client.api_types import ServerStatus
    from heliostat.config import Settings

NOT_RUNNING_EXIT_CODE = 3


def up(
    background: Annotated[
        bool, typer.Option("--background", "-b", help="Run in the background; return when the server is up.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(help="TCP port; 0 for any free port. Default: 8470.", min=0, max=65535)
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on; 0.0.0.0 allows other machines. Default: 127.0.0.1."),
    ] = None,
    simulate_gpus: Annotated[str | None, typer.Option(help="Simulated GPUs, for tests: 4xA100.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="Engine that runs the jobs: local, slurm or simulated.")
    ] = None,
    paused: Annotated[
        bool,
        typer.Option(
            "--paused", help="Start no job, fire no schedule and send no notification, until `helio resume`."
        ),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Start Heliostat on this machine.

    Needs no configuration. Stores all data under HELIOSTAT_HOME.
    """
    from heliostat.cli.server_process import read_server_status, start_server_in_background
    from heliostat.config import find_home, load_settings
    from heliostat.config.pause_file import pause

    home = find_home()
    options = {"server": {"port": port, "host": host, "simulate_gpus": simulate_gpus, "engine": engine}}
    settings = load_settings(home, options)
    if running := read_server_status(home):
        if paused and not running.get("paused"):
            raise Conflict("Heliostat is already running, and not paused.", "helio down; helio up --paused")
        _print_running(running, as_json, "is already running")
        return
    if paused:
        pause(home, "it was started with --paused")
    if background:
        started = start_server_in_background(home, options)
        _print_running(started.status, as_json, "is running" if started.started_by_us else "is already running")
        _warn_of_private_environments(settings)
        return
    from heliostat.server import serve

    _warn_of_private_environments(settings)
    print_message("Heliostat runs in the foreground. Ctrl-C stops it; running jobs continue.")
    try:
        serve(settings)
    except Conflict:
        running = read_server_status(home)
        if not running:
            raise
        _print_running(running, as_json, "is already running")


def down(as_json: JsonFlag = False) -> None:
    """Stop Heliostat; running jobs continue."""
    from heliostat.cli.server_process import stop_server
    from heliostat.config import find_home

    home = find_home()
    pid = stop_server(home)
    if as_json:
        print_json({"stopped": pid is not None, "pid": pid, "home": str(home.path)})
    elif pid is None:
        print(f"Heliostat is not running on {home.path}.")
    else:
        print("Heliostat is stopped. Running jobs continue; helio up --background manages them again.")


def status(as_json: JsonFlag = False) -> None:
    """Show whether Heliostat is running.

    Exits with 3 if it is not.
    """
    from heliostat.cli.connection import connect

    client = connect()
    try:
        found: dict[str, Any] = {"running": True, **client.status()}
    except ServerUnreachable as error:
        if as_json:
            print_json({"running": False, "address": str(client.address), **_home_of(client.address)})
        else:
            print(error.message)
            print_message(f"hint: {error.hint}")
        raise typer.Exit(NOT_RUNNING_EXIT_CODE) from None
    if as_json:
        print_json(found)
        return
    jobs = ", ".join(f"{count} {state}" for state, count in found["jobs"].items() if count)
    print_fields(
        [
            ("Heliostat", f"{found['version']}, running as process {found['pid']}"),
            ("address", found["url"]),
            ("metrics", found.get("metrics_url")),
            ("data", found.get("home")),
            ("engine", found["engine"] + _format_outage(found.get("engine_outage"))),
            ("jobs", jobs or "no waiting or running jobs"),
            ("paused", (found.get("paused") or {}).get("reason")),
            ("forecasts", format_forecast_accuracy(found.get("forecasts"))),
        ]
    )


def _format_outage(outage: dict[str, Any] | None) -> str:
    return f", which has not answered since {format_time(outage['since'])}: {outage['reason']}" if outage else ""


def _print_running(running: "ServerStatus", as_json: bool, state: str) -> None:
    if as_json:
        print_json({"running": True, **running})
        return
    print(f"Heliostat {state}: {running['url']} (process {running['pid']}, data in {running.get('home', '?')})")
    if paused := running.get("paused"):
        from heliostat.cli.resume import explain_pause

        explain_pause(paused["reason"])
        return
    print("Next:  helio run --follow -- hostname    helio nodes    helio top    helio down")


def _warn_of_private_environments(settings: "Settings") -> None:
    from heliostat.doctor import check_environments

    for found in check_environments(settings):
        print_message(f"{found.level}: {found.message}")
        if found.hint:
            print_message(f"hint: {found.hint}")


def _home_of(address: Any) -> dict[str, str]:
    return {"home": str(address.socket.parent)} if address.socket is not None else {}
