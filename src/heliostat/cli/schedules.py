"""`helio schedule`: jobs that are submitted at set times or after other schedules."""

from datetime import tzinfo
from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.job_options import IsolateOption, isolate_job, job_options, parse_command
from heliostat.cli.output import Column, JsonFlag, StateCell, print_fields, print_json, print_table
from heliostat.cli.value_format import format_duration, format_time, parse_time

if TYPE_CHECKING:
    from heliostat.client import Client

schedule = command_group("Submit a job repeatedly, at set times or after other schedules.")
ScheduleArgument = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Name or id of the schedule.")]
TimingOption = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="TIMES", help="When to fire: '0 2 * * *', @daily, R/2026-07-22T12:00:00Z/PT24H, R5//P1M."
    ),
]
ZoneOption = Annotated[str | None, typer.Option(help="Time zone of the schedule: Europe/Berlin.")]
AfterOption = Annotated[
    list[str] | None, typer.Option(help="Fire when this schedule of yours has succeeded. May be repeated.")
]
OverlapOption = Annotated[
    str | None,
    typer.Option(metavar="RULE", help="If an earlier job still runs: skip, queue, replace or allow."),
]
CatchUpOption = Annotated[
    str | None,
    typer.Option(metavar="RULE", help="Firings missed in a downtime that are repeated: none, last, all."),
]
EpsilonOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Skip missed firings that are later than this: 2h.")
]
RetriesOption = Annotated[int | None, typer.Option(metavar="N", help="Number of retries of a failed job.")]
TimesOption = Annotated[int | None, typer.Option(metavar="N", help="End the schedule after this many firings.")]
SoftErrorOption = Annotated[
    bool | None, typer.Option(help="Fire the schedules after this one even if its job has failed.")
]
JobFileOption = Annotated[
    str | None, typer.Option("--file", "-f", metavar="FILE", help="The job as YAML or JSON; - for standard input.")
]
CommandArgument = Annotated[list[str] | None, typer.Argument(metavar="[--] [CMD]...", show_default=False)]
_COLUMNS = (
    Column("ID", right_aligned=True),
    Column("NAME", shrinkable=True),
    Column("USER", optional=True),
    Column("STATE"),
    Column("TIMES", shrinkable=True),
    Column("NEXT"),
    Column("OK", right_aligned=True),
    Column("FAILED", right_aligned=True),
)
SHORT_FLAGS = {"gpus": "-g", "cpus": "-c", "memory": "-m", "time_limit": "-t", "project": "-p"}
_FIRINGS = (
    Column("DUE"),
    Column("STATE"),
    Column("JOB", right_aligned=True),
    Column("TRIES", right_aligned=True, optional=True),
    Column("REASON", shrinkable=True),
)


@schedule.command(context_settings={"allow_interspersed_args": True})
@job_options("schedule", short=SHORT_FLAGS)
def create(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    command: CommandArgument = None,
    at: TimingOption = None,
    zone: ZoneOption = None,
    after: AfterOption = None,
    overlap: OverlapOption = None,
    catch_up: CatchUpOption = None,
    epsilon: EpsilonOption = None,
    retries: RetriesOption = None,
    times: TimesOption = None,
    soft_error: SoftErrorOption = None,
    file: JobFileOption = None,
    *,
    job: dict[str, Any],
    isolate: IsolateOption = False,
    paused: Annotated[bool, typer.Option("--paused", help="Create the schedule paused.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the next ten firing times.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Create a schedule and show its next ten firing times.

    helio schedule create nightly --at '0 2 * * *' --gpus 1 -- python evaluate.py
    """
    job = isolate_job(job) if isolate else job
    client = connect()
    if dry_run:
        if at is None:
            raise typer.BadParameter("The times are missing: --at TIMES.", param_hint="--at")
        _print_times(client.schedules.preview(at, time_zone=zone), zone, as_json)
        return
    rules = _rules(zone, after, overlap, catch_up, epsilon, retries, times, soft_error)
    request = _job(client, file, command, job)
    created = client.schedules.create(name, at, request, **rules, **({"paused": True} if paused else {}))
    if as_json:
        print_json(created)
        return
    print(f"Schedule {created['id']} ({created['name']}) is {created['state']}.")
    _print_times(created["next_times"], created["time_zone"], False)


@schedule.command("list")
def list_schedules(
    all_users: Annotated[
        bool, typer.Option("--all", "-a", help="Include schedules of projects that you manage.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """List schedules by name."""
    result = connect().schedules.list(all_users=all_users)
    if as_json:
        print_json(result)
    elif not result:
        print("No schedules. Create one: helio schedule create nightly --at '0 2 * * *' -- python evaluate.py")
    else:
        print_table(_COLUMNS, (_row(data) for data in result))


@schedule.command()
def show(
    name: ScheduleArgument,
    firings: Annotated[int, typer.Option(metavar="N", help="Number of past firings to show.")] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Show a schedule with its next firing times and its past firings."""
    client = connect()
    result = client.schedules.get(name)
    past = client.schedules.firings(result["id"], firings) if firings > 0 else []
    if as_json:
        print_json({**result, "firings": past})
        return
    print_fields(_facts(result))
    if result["next_times"]:
        print("\nNext:")
        _print_times(result["next_times"], result["time_zone"], False)
    if past:
        print()
        print_table(_FIRINGS, (_firing_row(data) for data in past))


@schedule.command("next")
def print_next_times(
    times: Annotated[
        str, typer.Argument(metavar="SCHEDULE|TIMES", help="A schedule, or times as for --at: '0 2 * * *'.")
    ],
    zone: ZoneOption = None,
    count: Annotated[int, typer.Option("--count", "-n", help="Number of firing times to show for TIMES.")] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Show the next firing times of a schedule or of an expression such as '0 2 * * *'."""
    is_timing = " " in times.strip() or times.startswith(("@", "R/")) or "/P" in times.upper()
    client = connect()
    if is_timing:
        _print_times(client.schedules.preview(times, time_zone=zone, count=count), zone, as_json)
    else:
        found = client.schedules.get(times)
        _print_times(found["next_times"], found["time_zone"], as_json)


@schedule.command()
def pause(name: ScheduleArgument, as_json: JsonFlag = False) -> None:
    """Pause a schedule until it is resumed; its submitted jobs continue."""
    _print_state(connect().schedules.pause(name), as_json)


@schedule.command()
def resume(name: ScheduleArgument, as_json: JsonFlag = False) -> None:
    """Resume a paused schedule from now on."""
    _print_state(connect().schedules.resume(name), as_json)


@schedule.command()
def run(name: ScheduleArgument, as_json: JsonFlag = False) -> None:
    """Fire a schedule once now, in addition to its times."""
    fired = connect().schedules.run(name)
    if as_json:
        print_json(fired)
    else:
        print(f"Job {fired['job_id']} submitted. Watch it: helio logs -f {fired['job_id']}")


@schedule.command()
def remove(name: ScheduleArgument, as_json: JsonFlag = False) -> None:
    """Remove a schedule and its firing history; its jobs stay."""
    connect().schedules.remove(name)
    if as_json:
        print_json({"schedule": name, "removed": True})
    else:
        print(f"Schedule {name} is removed.")


@schedule.command(context_settings={"allow_interspersed_args": True})
def edit(
    name: ScheduleArgument,
    command: CommandArgument = None,
    new_name: Annotated[str | None, typer.Option("--name", help="New name.")] = None,
    at: TimingOption = None,
    zone: ZoneOption = None,
    after: AfterOption = None,
    overlap: OverlapOption = None,
    catch_up: CatchUpOption = None,
    epsilon: EpsilonOption = None,
    retries: RetriesOption = None,
    times: TimesOption = None,
    soft_error: SoftErrorOption = None,
    file: JobFileOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Change a schedule. Only the given options change; a given command or --file replaces the job."""
    client = connect()
    changes = _rules(zone, after, overlap, catch_up, epsilon, retries, times, soft_error)
    if at is not None:
        changes |= {"schedule": at, "parents": []}
    elif after:
        changes["schedule"] = None
    if new_name is not None:
        changes["name"] = new_name
    if command or file is not None:
        changes["job"] = _job(client, file, command, {})
    if not changes:
        raise typer.BadParameter("Nothing to change. Give an option or a command.", param_hint="--at")
    changed = client.schedules.change(name, **changes)
    if as_json:
        print_json(changed)
        return
    print(f"Schedule {changed['id']} ({changed['name']}) is changed.")
    _print_times(changed["next_times"], changed["time_zone"], False)


def _rules(
    zone: str | None,
    after: list[str] | None,
    overlap: str | None,
    catch_up: str | None,
    epsilon: str | None,
    retries: int | None,
    times: int | None,
    soft_error: bool | None,
) -> dict[str, Any]:
    given = {
        "time_zone": zone,
        "parents": after or None,
        "overlap": overlap,
        "catch_up": catch_up,
        "epsilon": epsilon,
        "retries": retries,
        "ends_after": times,
        "soft_error": soft_error,
    }
    return {name: value for name, value in given.items() if value is not None}


def _job(client: "Client", file: str | None, command: list[str] | None, options: dict[str, Any]) -> dict[str, Any]:
    """The job of a file or of CMD, changed by the options of the command line."""
    from heliostat.cli.uploads import upload_job_folders

    if file is not None:
        from heliostat.cli.submit import normalize_job_fields, read_job_file

        jobs = read_job_file(file)
        if len(jobs) != 1 or command:
            raise typer.BadParameter("A schedule has one job: either in a file or as CMD.", param_hint="--file")
        job = {**normalize_job_fields(jobs[0], client.address.default_workdir()), **options}
        if "upload" in options:
            job.pop("workdir", None)
    elif command or "script" in options:
        job = {**options, "command": parse_command(command, has_script="script" in options)}
    else:
        raise typer.BadParameter("The command is missing: -- CMD, or --file FILE.", param_hint="CMD")
    return upload_job_folders(client, [job])[0]


def _print_state(data: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(data)
        return
    next_at = f"; it fires next {format_time(data['next_at'])}" if data["next_at"] else ""
    print(f"Schedule {data['id']} ({data['name']}) is {data['state']}{next_at}.")


def _print_times(times: list[str], zone: str | None, as_json: bool) -> None:
    """In the time zone of the schedule; None: the local one."""
    if as_json:
        print_json({"times": times})
        return
    for text in times:
        at = parse_time(text)
        print(f"  {at.astimezone(_find_zone(zone)):%a %Y-%m-%d %H:%M:%S %Z}" if at else f"  {text}")
    if not times:
        print("  No firing times.")


def _find_zone(name: str | None) -> tzinfo | None:
    """None, the local time zone, also for a name that this machine does not know."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _row(data: dict[str, Any]) -> list[str]:
    return [
        str(data["id"]),
        data["name"],
        data["user"],
        StateCell(data["state"]),
        data["schedule"] or f"after {', '.join(map(str, data['parents']))}",
        format_time(data["next_at"]),
        str(data["succeeded"]),
        str(data["failed"]),
    ]


def _facts(data: dict[str, Any]) -> list[tuple[str, str | None]]:
    command = data["job"].get("command", data["job"].get("script", ""))
    return [
        ("Schedule", f"{data['id']} ({data['name']})"),
        ("Owner", f"{data['user']}, project {data['project']}"),
        ("State", StateCell(data["state"])),
        ("Times", f"{data['schedule']} ({data['time_zone']})" if data["schedule"] else None),
        ("After", ", ".join(map(str, data["parents"])) or None),
        ("Command", command if isinstance(command, str) else " ".join(command)),
        ("Overlap", data["overlap"]),
        (
            "Catch up",
            data["catch_up"]
            + (f", {format_duration(data['epsilon_seconds'])}" if data["epsilon_seconds"] else ""),
        ),
        ("Retries", str(data["retries"]) if data["retries"] else None),
        ("Ends after", f"{data['ends_after']} firings" if data["ends_after"] else None),
        ("Firings", f"{data['fired']}, {data['succeeded']} succeeded, {data['failed']} failed"),
    ]


def _firing_row(data: dict[str, Any]) -> list[str]:
    job, count = data["job_id"], data["count"]
    state = StateCell(data["state"]) if count == 1 else f"{data['state']} {count}"
    reason = "fired manually" if data["by_hand"] and not data["reason"] else data["reason"] or "-"
    return [
        format_time(data["due_at"]),
        state,
        str(job) if job else "-",
        str(data["tries"]) if job else "-",
        reason,
    ]
