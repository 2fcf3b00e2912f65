"""`helio submit`: submits the jobs in a YAML or JSON file; Chronos jobs become schedules."""

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.connection import connect
from heliostat.cli.document_files import file_error, read_file
from heliostat.cli.job_options import normalize_begin_time
from heliostat.cli.job_submission import DryRunOption, ReportFlags, job_layers, submit_job
from heliostat.cli.output import JsonFlag, format_count, print_json, print_message
from heliostat.cli.script_options import read_script
from heliostat.cli.submitted_job_report import first_failed_exit_code, print_hints, print_left_running_hint
from heliostat.cli.uploads import upload_job_folders, warn_about_empty_folder
from heliostat.cli.value_format import format_time
from heliostat.client.request_bodies import rename_api_fields, with_environment_spec
from heliostat.models.job_fields import JOB_FIELDS, normalize_yaml_job
from heliostat.models.schedules import is_chronos_job

if TYPE_CHECKING:
    from heliostat.client import Client

_MAX_NAMED = 8  # jobs


def submit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - for standard input.")],
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all jobs end; exit with the exit code of the first failure.")
    ] = False,
    no_record: Annotated[
        bool, typer.Option("--no-record", help="Do not record the git state of the code.")
    ] = False,
    dry_run: DryRunOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Submit the jobs in a YAML or JSON file, or a script.

    The file contains one job, a list of jobs, or {"jobs": [...]}.
    A job may wait for other jobs of the file: `after: NAME`.
    All jobs are submitted, or none if one is invalid.
    Chronos jobs (with schedule or parents) become schedules.

    \b
    Fields of a job:
    """
    client = connect()
    if (script := read_script(file)) is not None:
        job = {"script": script, **({"record": False} if no_record else {})}
        submit_job(client, job_layers(job, Path(file).name), ReportFlags(wait, False, as_json, dry_run))
        return
    jobs = read_job_file(file)
    if any(is_chronos_job(job) for job in jobs):
        submit_chronos_jobs(client, file, jobs, as_json)
        return
    bodies = [normalize_job_fields(job, client.address.default_workdir()) for job in jobs]
    warn_about_empty_folder(client, bodies, ("`upload: .`", "`workdir: PATH`"))
    if dry_run:
        _print_preview(client, bodies, as_json)
        return
    bodies = upload_job_folders(client, bodies)
    response = client.submit_bodies(bodies, record=not no_record)
    ids: list[int] = response["job_ids"]
    if as_json and not wait:
        print_json(client.jobs.get(ids[0]).data if len(bodies) == 1 and not response["array_ids"] else response)
    elif not as_json:
        write = print_message if wait else print
        count = f"{format_count(len(ids), 'job')} submitted: {_ranges(ids)}"
        write(
            count if wait else f"{count}. Watch {'it' if len(ids) == 1 else 'them'}: helio logs -f {_names(ids)}"
        )
        print_hints(response.get("hints", ()))
    if not wait:
        return
    try:
        ended = client.wait(ids)
    except KeyboardInterrupt:
        print_left_running_hint(ids)
        raise typer.Exit(130) from None
    if as_json:
        print_json({**response, "jobs": [job.data for job in ended]})
    print_message(f"{sum(job.ok for job in ended)} of {format_count(len(ended), 'job')} completed.")
    raise typer.Exit(first_failed_exit_code(job.data for job in ended))


_FIELDS_HELP = "".join(f"      {field.name:<14}  {field.help_with_choices}\n" for field in JOB_FIELDS)
submit.__doc__ = f"{(submit.__doc__ or '').rstrip()}\n{_FIELDS_HELP}"


def _print_preview(client: "Client", bodies: list[dict[str, Any]], as_json: bool) -> None:
    from heliostat.cli.job_preview import print_job_preview, print_jobs_preview

    preview = client.preview_bodies([{**body, "upload": None} for body in bodies])
    if len(bodies) == 1:
        print_job_preview(preview, {"file": rename_api_fields(bodies[0])}, as_json)
    else:
        print_jobs_preview(preview, as_json)


def read_job_file(file: str) -> list[dict[str, Any]]:
    """The jobs in a file, with the fields of the API."""
    content = read_file(file)
    if isinstance(content, dict) and isinstance(content.get("jobs"), list):
        if len(content) > 1:
            raise file_error(file, "it must have no field besides `jobs`")
        content = content["jobs"]
    jobs = content if isinstance(content, list) else [content]
    if not jobs:
        raise file_error(file, "it contains no job")
    if not all(isinstance(job, dict) for job in jobs):
        raise file_error(file, "a job must be a mapping of fields, such as `command: python train.py`")
    return jobs


def normalize_job_fields(job: dict[str, Any], workdir: str | None) -> dict[str, Any]:
    """A job in the form of the API: times as text, files of software as content, absolute paths."""
    normalized = normalize_yaml_job(job)
    if isinstance(job.get("environment"), str):
        normalized = with_environment_spec(normalized)
    if isinstance(begin := job.get("begin"), str | date):
        normalized["begin"] = normalize_begin_time(begin)
    if "workdir" not in job and "upload" not in job and workdir is not None:
        normalized["workdir"] = workdir
    elif isinstance(job.get("workdir"), str) and not job["workdir"].startswith("/") and workdir is not None:
        normalized["workdir"] = str(Path(workdir, job["workdir"]).resolve())
    return normalized


def _names(ids: list[int]) -> str:
    """Of a few jobs their ids; otherwise the option that selects them."""
    return " ".join(str(job_id) for job_id in sorted(ids)) if len(ids) <= _MAX_NAMED else "--mine"


def _ranges(ids: list[int]) -> str:
    """`4-9, 12`."""
    runs: list[list[int]] = []
    for job_id in sorted(ids):
        if runs and runs[-1][1] == job_id - 1:
            runs[-1][1] = job_id
        else:
            runs.append([job_id, job_id])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def submit_chronos_jobs(client: "Client", file: str, documents: list[dict[str, Any]], as_json: bool) -> None:
    """Creates a schedule from each Chronos job; parents before their children."""
    if not all(is_chronos_job(document) for document in documents):
        raise typer.BadParameter(f"{file}: Chronos jobs and other jobs cannot be in one file.", param_hint="FILE")
    schedules = [client.schedules.put_chronos(document) for document in _parents_first(documents)]
    if as_json:
        print_json(schedules[0] if len(schedules) == 1 else schedules)
        return
    for schedule in schedules:
        next_at = (
            f"fires next {format_time(schedule['next_at'])}" if schedule["next_at"] else f"is {schedule['state']}"
        )
        print(f"Schedule {schedule['id']} ({schedule['name']}) {next_at}.")


def _parents_first(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Jobs in a dependency cycle come last; the server rejects them."""
    left, done = list(documents), []
    while ready := [document for document in left if not _has_parent_in(document, left)]:
        done += ready
        left = [document for document in left if document not in ready]
    return [*done, *left]


def _has_parent_in(document: dict[str, Any], others: list[dict[str, Any]]) -> bool:
    parents = document.get("parents") or []
    return isinstance(parents, list) and any(other.get("name") in parents for other in others)
