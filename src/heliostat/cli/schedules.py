"""`helio schedule`: jobs that are submitted again and again."""

from typing import Annotated, Any

import typer

from heliostat.cli.app import command_group
from heliostat.cli.connection import connect
from heliostat.cli.job_options import job_options, parse_command
from heliostat.cli.output import Column, JsonFlag, StateCell, print_fields, print_json, print_table
from heliostat.cli.value_format import format_duration, format_time, parse_time

schedule = command_group("Submit a job again and again, at times or after others.")
ScheduleArgument = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its name or number.")]
TimingOption = Annotated[
    str | None,
    typer.Option("--at", metavar="TIMES", help="'0 2 * * *', @daily, R/2026-07-22T12:00:00Z/PT24H, R5//P1M."),
]
ZoneOption = Annotated[str | None, typer.Option(help="Whose clocks: Europe/Berlin.")]
AfterOption = Annotated[
    list[str] | None, typer.Option(help="Fire when this schedule of yours has succeeded. May be repeated.")
]
OverlapOption = Annotated[
    str | None, typer.Option(metavar="RULE", help="While an earlier job runs: skip, queue, replace, allow.")
]
CatchUpOption = Annotated[str | None, typer.Option(metavar="RULE", help="After a downtime: none, last, all.")]
EpsilonOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="What is later than this is not made up for.")
]
RetriesOption = Annotated[int | None, typer.Option(metavar="N", help="How often to try again a job that failed.")]
TimesOption = Annotated[int | None, typer.Option(metavar="N", help="End after so many firings.")]
SoftErrorOption = Annotated[bool | None, typer.Option(help="Let those after it fire also when it has failed.")]
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
    paused: Annotated[bool, typer.Option("--paused", help="Make it, but do not fire yet.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the next ten times.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make a schedule, and show the next ten times it fires.

    helio schedule create nightly --at '0 2 * * *' --gpus 1 -- python evaluate.py
    """
    client = connect()
    if dry_run:
        if at is None:
            raise typer.BadParameter("Say when: --at TIMES.", param_hint="--at")
        _print_times(client.schedules.preview(at, time_zone=zone), as_json)
        return
    rules = _rules(zone, after, overlap, catch_up, epsilon, retries, times, soft_error)
    asked = {**_job(file, command), **job}
    made = client.schedules.create(name, at, asked, **rules, **({"paused": True} if paused else {}))
    if as_json:
        print_json(made)
        return
    print(f"Schedule {made['id']} ({made['name']}) is {made['state']}.")
    _print_times(made["next_times"], False)


@schedule.command("list")
def list_schedules(
    all_users: Annotated[bool, typer.Option("--all", "-a", help="Also those of projects you manage.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List schedules by name."""
    found = connect().schedules.list(all_users=all_users)
    if as_json:
        print_json(found)
    elif not found:
        print("No schedules. Make one: helio schedule create nightly --at '0 2 * * *' -- python evaluate.py")
    else:
        print_table(_COLUMNS, (_row(one) for one in found))


@schedule.command()
def show(
    name: ScheduleArgument,
    firings: Annotated[int, typer.Option(metavar="N", help="How many of its firings to show.")] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Show a schedule, its next times and its firings."""
    client = connect()
    found = client.schedules.get(name)
    past = client.schedules.firings(found["id"], firings) if firings > 0 else []
    if as_json:
        print_json({**found, "firings": past})
        return
    print_fields(_facts(found))
    if found["next_times"]:
        print("\nNext:")
        _print_times(found["next_times"], False)
    if past:
        print()
        print_table(_FIRINGS, (_firing_row(one) for one in past))


@schedule.command("next")
def print_next_times(
    times: Annotated[str, typer.Argument(metavar="SCHEDULE|TIMES", help="A schedule, or times to try.")],
    zone: ZoneOption = None,
    count: Annotated[int, typer.Option("--count", "-n", help="How many, of times to try.")] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Show when a schedule fires next, or when such times would."""
    is_timing = " " in times.strip() or times.startswith(("@", "R/")) or "/P" in times.upper()
    client = connect()
    if is_timing:
        _print_times(client.schedules.preview(times, time_zone=zone, count=count), as_json)
    else:
        _print_times(client.schedules.get(times)["next_times"], as_json)


@schedule.command()
def pause(name: ScheduleArgument, as_json: JsonFlag = False) -> None:
    """Fire no more until it is resumed; jobs that are there go on."""
    _said(connect().schedules.pause(name), as_json)


@schedule.command()
def resume(name: ScheduleArgument, as_json: JsonFlag = False) -> None:
    """Fire again, from now on."""
    _said(connect().schedules.resume(name), as_json)


@schedule.command()
def run(name: ScheduleArgument, as_json: JsonFlag = False) -> None:
    """Fire once now, besides what is due."""
    fired = connect().schedules.run(name)
    if as_json:
        print_json(fired)
    else:
        print(f"Job {fired['job_id']} submitted. Watch it: helio logs -f {fired['job_id']}")


@schedule.command()
def remove(name: ScheduleArgument, as_json: JsonFlag = False) -> None:
    """Remove a schedule and the record of its firings; its jobs stay."""
    connect().schedules.remove(name)
    if as_json:
        print_json({"schedule": name, "removed": True})
    else:
        print(f"Schedule {name} is removed.")


@schedule.command(context_settings={"allow_interspersed_args": True})
def edit(
    name: ScheduleArgument,
    command: CommandArgument = None,
    new_name: Annotated[str | None, typer.Option("--name", help="Another name.")] = None,
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
    """Change a schedule: only what is given changes. A job that is given takes the place of the old one."""
    changes = _rules(zone, after, overlap, catch_up, epsilon, retries, times, soft_error)
    if at is not None:
        changes |= {"schedule": at, "parents": []}
    elif after:
        changes["schedule"] = None
    if new_name is not None:
        changes["name"] = new_name
    if command or file is not None:
        changes["job"] = _job(file, command)
    if not changes:
        raise typer.BadParameter("Say what to change.", param_hint="--at")
    changed = connect().schedules.change(name, **changes)
    if as_json:
        print_json(changed)
        return
    print(f"Schedule {changed['id']} ({changed['name']}) is changed.")
    _print_times(changed["next_times"], False)


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


def _job(file: str | None, command: list[str] | None) -> dict[str, Any]:
    if file is not None:
        from heliostat.cli.submit import read_job_file

        jobs = read_job_file(file)
        if len(jobs) != 1 or command:
            raise typer.BadParameter("A schedule has one job: in a file, or as CMD.", param_hint="--file")
        return jobs[0]
    if not command:
        raise typer.BadParameter("Say what to run: -- CMD, or --file FILE.", param_hint="CMD")
    return {"command": parse_command(command)}


def _said(one: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(one)
        return
    next_at = f"; it fires next {format_time(one['next_at'])}" if one["next_at"] else ""
    print(f"Schedule {one['id']} ({one['name']}) is {one['state']}{next_at}.")


def _print_times(times: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"times": times})
        return
    for text in times:
        at = parse_time(text)
        print(f"  {at.astimezone():%a %Y-%m-%d %H:%M:%S %Z}" if at else f"  {text}")
    if not times:
        print("  It does not fire by itself now.")


def _row(one: dict[str, Any]) -> list[str]:
    return [
        str(one["id"]),
        one["name"],
        one["user"],
        StateCell(one["state"]),
        one["schedule"] or f"after {', '.join(map(str, one['parents']))}",
        format_time(one["next_at"]),
        str(one["succeeded"]),
        str(one["failed"]),
    ]


def _facts(one: dict[str, Any]) -> list[tuple[str, str | None]]:
    command = one["job"].get("command", one["job"].get("script", ""))
    return [
        ("Schedule", f"{one['id']} ({one['name']})"),
        ("Of", f"{one['user']}, project {one['project']}"),
        ("State", StateCell(one["state"])),
        ("Times", f"{one['schedule']} ({one['time_zone']})" if one["schedule"] else None),
        ("After", ", ".join(map(str, one["parents"])) or None),
        ("Runs", command if isinstance(command, str) else " ".join(command)),
        ("Overlap", one["overlap"]),
        (
            "Catch up",
            one["catch_up"] + (f", {format_duration(one['epsilon_seconds'])}" if one["epsilon_seconds"] else ""),
        ),
        ("Retries", str(one["retries"]) if one["retries"] else None),
        ("Ends after", f"{one['fired']} of {one['ends_after']} firings" if one["ends_after"] else None),
        ("Fired", f"{one['fired']}, {one['succeeded']} succeeded, {one['failed']} failed"),
    ]


def _firing_row(one: dict[str, Any]) -> list[str]:
    job, count = one["job_id"], one["count"]
    state = StateCell(one["state"]) if count == 1 else f"{one['state']} {count}"
    reason = "by hand" if one["by_hand"] and not one["reason"] else one["reason"] or "-"
    return [format_time(one["due_at"]), state, str(job) if job else "-", str(one["tries"]) if job else "-", reason]
