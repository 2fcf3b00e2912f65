"""Commands that list, show and change jobs."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.connection import connect
from heliostat.cli.job_tables import (
    FOREIGN_JOB_COLUMNS,
    JOB_COLUMNS,
    foreign_job_row,
    job_details,
    job_row,
    print_attempts,
)
from heliostat.cli.output import (
    JsonFlag,
    StateCell,
    format_cell,
    format_count,
    print_fields,
    print_json,
    print_message,
    print_table,
)
from heliostat.cli.value_format import format_time

if TYPE_CHECKING:
    from heliostat.client import Client, JobHandle
    from heliostat.client.api_types import JobData

JobIdsArgument = Annotated[list[int], typer.Argument(metavar="JOB", help="Job ids.")]


def ps(
    all_jobs: Annotated[bool, typer.Option("--all", "-a", help="Also those that are over.")] = False,
    mine: Annotated[bool, typer.Option("--mine", "-m", help="Only yours.")] = False,
    state: Annotated[list[str] | None, typer.Option("--state", "-s", help="pending, running… May repeat.")] = None,
    user: Annotated[str | None, typer.Option(help="Of one person.")] = None,
    project: Annotated[str | None, typer.Option(help="Of one project.")] = None,
    name: Annotated[str | None, typer.Option(help="Whose name contains this.")] = None,
    node: Annotated[str | None, typer.Option(help="On one machine.")] = None,
    array: Annotated[int | None, typer.Option(help="Of one array; also those that are over.")] = None,
    others: Annotated[bool, typer.Option("--others", help="Those that went to Slurm without Heliostat.")] = False,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1)] = 50,
    as_json: JsonFlag = False,
) -> None:
    """List jobs, newest first.

    Without options those that wait or run, of everyone.
    """
    if others:
        _list_others(node, limit, as_json)
        return
    states = [one for item in state or [] for one in item.split(",") if one]
    over_too = all_jobs or bool(states) or array is not None
    found = connect().jobs.list(
        state=states,
        user="me" if mine else user,
        project=project,
        name=name,
        node=node,
        array_id=array,
        unfinished=None if over_too else True,
        limit=limit if as_json else limit + 1,
    )
    jobs = [job.data for job in found]
    if as_json:
        print_json(jobs)
        return
    if not jobs:
        print("No such jobs." if over_too else "Nothing waits or runs. helio ps --all shows what is over.")
        print("Submit one: helio run --gpus 1 -- python train.py")
        return
    print_table(JOB_COLUMNS, (job_row(job) for job in jobs[:limit]))
    if len(jobs) > limit:
        print_message(f"The newest {limit}; there are more: --limit {limit * 4}")


def _list_others(node: str | None, limit: int, as_json: bool) -> None:
    found = connect().slurm.list_foreign_jobs(node=node, limit=limit)
    if as_json:
        print_json(found)
        return
    if not found:
        print("All jobs here came through Heliostat.")
        return
    print_table(FOREIGN_JOB_COLUMNS, (foreign_job_row(job) for job in found))
    print_message(f"They can be changed with Slurm's own tools only: {found[0]['cancel_command']}")


def show(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    request: Annotated[
        bool, typer.Option("--request", help="Print what `helio submit -` takes to run it again.")
    ] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Print what is kept to repeat it: code, machine, request.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show everything about one job."""
    if record:
        from heliostat.cli.rerun import print_provenance

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
    jobs: Annotated[list[int] | None, typer.Argument(metavar="JOB", help="Job ids.", show_default=False)] = None,
    array: Annotated[int | None, typer.Option(help="All jobs of an array.")] = None,
    force: Annotated[bool, typer.Option("--force", help="KILL at once, without the job's grace.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Stop jobs.

    TERM first, KILL after the job's grace, for the whole tree of its processes.
    """
    if not jobs and array is None:
        raise typer.BadParameter("Say which: helio cancel JOB… or --array A", param_hint="JOB")
    client = connect()
    if array is None and jobs is not None:
        _change(jobs, lambda job: client.jobs.cancel(job, force=force), as_json)
        return
    count = client.jobs.cancel_array(array or 0, force=force)
    count += client.jobs.cancel_many(jobs, force=force) if jobs else 0
    if as_json:
        print_json({"count": count})
    else:
        print(f"{format_count(count, 'job')} cancelled.")


def hold(jobs: JobIdsArgument, as_json: JsonFlag = False) -> None:
    """Keep waiting jobs from starting."""
    _change(jobs, connect().jobs.hold, as_json)


def release(jobs: JobIdsArgument, as_json: JsonFlag = False) -> None:
    """Let held jobs start again."""
    _change(jobs, connect().jobs.release, as_json)


def requeue(jobs: JobIdsArgument, as_json: JsonFlag = False) -> None:
    """Stop running jobs and queue them again."""
    _change(jobs, connect().jobs.requeue, as_json)


def _change(jobs: Iterable[int], verb: Callable[[int], "JobHandle"], as_json: bool) -> None:
    """One after the other; one that cannot be changed does not keep the rest from it."""
    from heliostat.errors import Conflict, Forbidden, NotFound

    changed: list[JobData] = []
    failure: Exception | None = None
    for job_id in jobs:
        try:
            changed.append(verb(job_id).data)
        except (Conflict, Forbidden, NotFound) as error:
            if failure is not None:
                print_message(f"helio: {error.message}")
            failure = failure or error
            continue
        if not as_json:
            print(_changed_line(changed[-1]))
    if as_json:
        print_json(changed)
    if failure is not None:
        raise failure


def _changed_line(job: "JobData") -> str:
    stopping = f", being stopped ({job['stop_requested']})" if job.get("stop_requested") else ""
    return f"Job {job['id']} {format_cell(StateCell(job['state']))}{stopping}"


def list_unfinished_jobs(client: "Client", limit: int) -> "list[JobData]":
    """What waits or runs, newest first."""
    return [job.data for job in client.jobs.list(unfinished=True, limit=limit)]


def results(
    job: Annotated[int, typer.Argument(metavar="JOB", help="A job id.")],
    to: Annotated[str | None, typer.Option(help="Into this folder; otherwise results-JOB.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Fetch what a job left in its folder results.

    Of a notebook: the executed notebook and a page of it, also when a cell failed.
    """
    folder = to or f"results-{job}"
    saved = [str(path) for path in connect().files.save_results(job, folder)]
    if as_json:
        print_json({"job_id": job, "files": saved})
        return
    for path in saved:
        print(path)
    print_message(
        f"{format_count(len(saved), 'file')} saved." if saved else f"Job {job} has left no results (yet)."
    )


def extend(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    time: Annotated[str, typer.Argument(metavar="TIME", help="How much more: 30m, 2h.")],
    as_json: JsonFlag = False,
) -> None:
    """Give a running or waiting session more time.

    helio extend 12 2h. A batch job only by a manager of its project: others planned with its limit.
    """
    told = connect().jobs.extend(job, time).data
    if as_json:
        print_json(told)
        return
    hours, seconds = divmod(told["time_limit_seconds"] or 0, 3600)
    print(f"The time limit of job {job} is now {hours}h{seconds // 60:02d}m.")


def checkpointed(
    job: Annotated[
        int | None,
        typer.Argument(metavar="JOB", help="The job it is called from, unless said.", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say that a running job has saved its work.

    What it did until now is not lost when it is stopped for others. Call it from within the job.
    """
    data = connect().jobs.mark_checkpointed(job).data
    if as_json:
        print_json(data)
    else:
        print(f"Job {data['id']}: work until {format_time(data['checkpointed_at'])} is saved.")
