"""Commands for jobs: ps, show, cancel, hold, release, requeue, results, extend, keep, checkpointed."""

from collections.abc import Callable, Iterable
from datetime import datetime, time, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.connection import connect
from heliostat.cli.job_format import (
    FOREIGN_JOB_COLUMNS,
    JOB_COLUMNS,
    foreign_job_row,
    job_details,
    job_row,
    print_attempts,
)
from heliostat.cli.job_selection import JobsArgument, MineOption, NameOption, names_only_ids, select_jobs
from heliostat.cli.output import (
    JsonFlag,
    StateCell,
    format_cell,
    format_count,
    print_fields,
    print_json,
    print_message,
    print_table,
    sanitize_text,
)
from heliostat.cli.value_format import format_time
from heliostat.errors import BadRequest

if TYPE_CHECKING:
    from heliostat.client import Client, JobHandle
    from heliostat.client.api_types import JobData

JobIdsArgument = Annotated[list[int], typer.Argument(metavar="JOB", help="Job ids.")]


def ps(
    all_jobs: Annotated[bool, typer.Option("--all", "-a", help="Include jobs that have ended.")] = False,
    mine: Annotated[bool, typer.Option("--mine", "-m", help="Only your jobs.")] = False,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", "-s", help="Only jobs in this state: pending, running… May be repeated."),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Only jobs of this user.")] = None,
    project: Annotated[str | None, typer.Option(help="Only jobs of this project.")] = None,
    name: Annotated[str | None, typer.Option(help="Only jobs whose name contains this text.")] = None,
    node: Annotated[str | None, typer.Option(help="Only jobs on this node.")] = None,
    array: Annotated[
        int | None, typer.Option(help="Only jobs of this array, including jobs that have ended.")
    ] = None,
    foreign: Annotated[
        bool, typer.Option("--foreign", help="List jobs that were submitted to Slurm directly.")
    ] = False,
    limit: Annotated[int, typer.Option(help="Maximum number of jobs.", min=1)] = 50,
    as_json: JsonFlag = False,
) -> None:
    """List jobs, newest first.

    Without options, the waiting and running jobs of all users. Of the ended replicas of a service, only the newest
    is listed, unless --name is given.
    """
    if foreign:
        _list_foreign_jobs(node, limit, as_json)
        return
    states = [part for text in state or [] for part in text.split(",") if part]
    includes_ended = all_jobs or bool(states) or array is not None
    found = connect().jobs.list(
        state=states,
        user="me" if mine else user,
        project=project,
        name=name,
        node=node,
        array_id=array,
        unfinished=None if includes_ended else True,
        newest_replicas=True if name is None else None,
        limit=limit if as_json else limit + 1,
    )
    jobs = [job.data for job in found]
    if as_json:
        print_json(jobs)
        return
    if not jobs:
        print(
            "No matching jobs."
            if includes_ended
            else "No waiting or running jobs. helio ps --all includes jobs that have ended."
        )
        print("Submit one: helio run --gpus 1 -- python train.py")
        return
    print_table(JOB_COLUMNS, (job_row(job) for job in jobs[:limit]))
    if len(jobs) > limit:
        print_message(f"Only the newest {limit} are shown. Show more: --limit {limit * 4}")


def _list_foreign_jobs(node: str | None, limit: int, as_json: bool) -> None:
    found = connect().slurm.list_foreign_jobs(node=node, limit=limit)
    if as_json:
        print_json(found)
        return
    if not found:
        print("No jobs were submitted to Slurm directly.")
        return
    print_table(FOREIGN_JOB_COLUMNS, (foreign_job_row(job) for job in found))
    print_message(f"Only Slurm's own tools can change these jobs: {found[0]['cancel_command']}")


def show(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    request: Annotated[
        bool, typer.Option("--request", help="Print the job's request, as input for `helio submit -`.")
    ] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Print its provenance: code, nodes and request.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show all details of a job."""
    if record:
        from heliostat.cli.provenance import print_provenance

        print_provenance(job, as_json)
        return
    data = connect().jobs.get(job).data
    if request:
        print_json(data["request"])
        return
    if as_json:
        print_json(data)
        return
    print_fields(job_details(data))
    attempts = data.get("attempts", [])
    if len(attempts) > 1:
        print()
        print_attempts(attempts)


def cancel(
    jobs: JobsArgument = None,
    mine: MineOption = False,
    name: NameOption = None,
    user: Annotated[str | None, typer.Option(help="Jobs of this user that have not ended. For admins.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Send KILL immediately, without a grace period.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Cancel jobs.

    All processes of a job get TERM and, after its grace period, KILL.
    """
    client = connect()
    selected = select_jobs(client, jobs, mine, name, user=user, unfinished=True)
    if user is None and names_only_ids(jobs, mine, name):
        _change(selected, lambda job: client.jobs.cancel(job, force=force), as_json)
        return
    count = client.jobs.cancel_many(selected, force=force) if selected else 0
    if as_json:
        print_json({"count": count})
    else:
        print(f"{format_count(count, 'job')} cancelled.")


def hold(
    jobs: JobsArgument = None, mine: MineOption = False, name: NameOption = None, as_json: JsonFlag = False
) -> None:
    """Prevent waiting jobs from starting."""
    client = connect()
    _change(select_jobs(client, jobs, mine, name, state="pending"), client.jobs.hold, as_json)


def release(
    jobs: JobsArgument = None, mine: MineOption = False, name: NameOption = None, as_json: JsonFlag = False
) -> None:
    """Allow held jobs to start."""
    client = connect()
    _change(select_jobs(client, jobs, mine, name, state="held"), client.jobs.release, as_json)


def requeue(jobs: JobIdsArgument, as_json: JsonFlag = False) -> None:
    """Stop running jobs and queue them again."""
    _change(jobs, connect().jobs.requeue, as_json)


def _change(jobs: Iterable[int], action: Callable[[int], "JobHandle"], as_json: bool) -> None:
    """Changes the jobs one by one; continues after a job that cannot be changed, and raises the first error."""
    from heliostat.errors import Conflict, Forbidden, NotFound

    changed: list[JobData] = []
    failure: Exception | None = None
    for job_id in jobs:
        try:
            changed.append(action(job_id).data)
        except (Conflict, Forbidden, NotFound) as error:
            if failure is not None:
                print_message(f"helio: {error.message}")
            failure = failure or error
            continue
        if not as_json:
            print(_changed_line(changed[-1]))
    if as_json:
        print_json(changed)
    elif not changed and failure is None:
        print("No matching jobs.")
    if failure is not None:
        raise failure


def _changed_line(job: "JobData") -> str:
    if job.get("had_ended"):
        return f"Job {job['id']} had already ended: {format_cell(StateCell(job['state']))}"
    stopping = f", stopping ({job['stop_requested']})" if job.get("stop_requested") else ""
    return f"Job {job['id']} {format_cell(StateCell(job['state']))}{stopping}"


def list_unfinished_jobs(client: "Client", limit: int) -> "list[JobData]":
    """Waiting and running jobs, newest first."""
    return [job.data for job in client.jobs.list(unfinished=True, limit=limit)]


def extend(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    time: Annotated[str, typer.Argument(metavar="TIME", help="Time to add: 30m, 2h.")],
    as_json: JsonFlag = False,
) -> None:
    """Extend the time limit of a running or waiting session.

    helio extend 12 2h. Batch jobs can be extended only by a manager of their project or an admin.
    """
    data = connect().jobs.extend(job, time).data
    if as_json:
        print_json(data)
        return
    hours, seconds = divmod(data["time_limit_seconds"] or 0, 3600)
    print(f"The time limit of job {job} is now {hours}h{seconds // 60:02d}m.")


def keep(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    for_time: Annotated[str | None, typer.Option("--for", metavar="TIME", help="For this long: 30m, 4h.")] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Until 15:00 or '2026-12-05 10:00', your local time.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Answer that a running job needs its idle GPUs.

    helio keep 12 --for 4h. No step against them is taken until then. For the owner of the job and the
    managers of its project.
    """
    if (for_time is None) == (until is None):
        raise typer.BadParameter("Give --for or --until.", param_hint="--for")
    end = f"+{for_time}" if for_time is not None else _next_time(until or "")
    try:
        data = connect().jobs.keep(job, end).data
    except BadRequest as error:
        if for_time is None or "until" not in error.fields:
            raise
        raise typer.BadParameter(error.fields["until"], param_hint="--for") from None
    if as_json:
        print_json(data)
    else:
        kept = data.get("idle_gpus") or {}
        left = format_count(kept.get("answers_left", 0), "answer")
        print(f"Job {job} keeps its GPUs until {format_time(kept.get('kept_until'))}; {left} left.")


def _next_time(text: str) -> str:
    """ISO 8601; of a time of day the next one. Raises BadParameter."""
    now = datetime.now().astimezone()
    try:
        if "-" in text:
            return datetime.fromisoformat(text.strip()).astimezone().isoformat()
        at = datetime.combine(now.date(), time.fromisoformat(text.strip())).astimezone()
    except (ValueError, OverflowError):
        hint = f"{sanitize_text(text)!r} is not a time. Write 15:00 or '2026-12-05 10:00'."
        raise typer.BadParameter(hint, param_hint="--until") from None
    return (at if at > now else at + timedelta(days=1)).isoformat()


def checkpointed(
    job: Annotated[
        int | None,
        typer.Argument(metavar="JOB", help="Job id. Default: the job that runs this command.", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Record that a running job has saved its work.

    Call it from inside the job after each checkpoint. The scheduler prefers to preempt jobs that lose little work.
    """
    data = connect().jobs.mark_checkpointed(job).data
    if as_json:
        print_json(data)
    else:
        print(f"Job {data['id']}: work until {format_time(data['checkpointed_at'])} is recorded as saved.")
