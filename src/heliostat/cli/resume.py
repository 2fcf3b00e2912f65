"""`helio resume`: ends the pause of a server."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.output import JsonFlag, print_json
from heliostat.errors import Forbidden

if TYPE_CHECKING:
    from heliostat.client import Client
    from heliostat.client.api_types import PauseDetails


class UnknownJobs(StrEnum):
    STOP = "stop"
    LEAVE = "leave"


def resume(
    unknown_jobs: Annotated[
        UnknownJobs | None,
        typer.Option(help="Stop running jobs that the database does not know, or leave them running unwatched."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """End the pause of a server.

    Jobs start again after `helio up --paused` or a restore. Asks about running jobs that the database does not
    know. Admins only.
    """
    with _connect() as client:
        details = client.pause_details()
        if details["paused"] and not as_json:
            _print_pause(details)
        choice = unknown_jobs or (_ask(details) if details["unknown_jobs"] else None)
        client.resume(choice.value if choice else None)
    if as_json:
        print_json({"was_paused": details["paused"], "unknown_jobs": details["unknown_jobs"]})
    elif details["paused"]:
        print("Heliostat is no longer paused: jobs start.")
    else:
        print("Heliostat is not paused.")


def explain_pause(reason: str) -> None:
    """After the start of a paused server. On a terminal, asks about unknown jobs."""
    with _connect() as client:
        try:
            details = client.pause_details()
        except Forbidden:
            print(f"Heliostat is paused: {reason}.")
            return
        _print_pause(details)
        if details["unknown_jobs"] and (choice := _ask(details)):
            client.resume(choice.value)
            print("Heliostat is no longer paused: jobs start.")
        else:
            print("Next:  helio ps    helio doctor    helio resume")


def _connect() -> "Client":
    """Without the notice that the server is paused."""
    from heliostat.client import Client

    return Client()


def _print_pause(details: "PauseDetails") -> None:
    print(
        f"Heliostat is paused: {details['reason']}. It starts no job, fires no schedule and sends no notification."
    )
    if details["after_restore"]:
        print("Jobs that were running at the time of the backup, and are not running now, become lost.")
    if details["unknown_jobs"]:
        print("These jobs run, but the database does not know them:")
    for found in details["unknown_jobs"]:
        owner, since = found["unix_user"] or "?", found["started_at"] or "an unknown time"
        print(f"  job {found['job_id']} of {owner}, since {since}, {found['place']}")


def _ask(details: "PauseDetails") -> UnknownJobs | None:
    """None: no answer, or no terminal."""
    if not sys.stdin.isatty():
        return None
    answer = input("Stop these jobs, leave them running unwatched, or stay paused? [stop/leave/paused] ").strip()
    return UnknownJobs(answer) if answer in list(UnknownJobs) else None
