"""`helio submit`: the jobs of a file into the queue; jobs of Chronos become schedules."""

import json
import sys
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.connection import connect
from heliostat.cli.job_options import normalize_begin_time
from heliostat.cli.job_wait import first_failed_exit_code, print_left_running_hint
from heliostat.cli.output import JsonFlag, format_count, print_json, print_message
from heliostat.cli.uploads import upload_job_folders
from heliostat.cli.value_format import format_time
from heliostat.client.request_bodies import with_environment_spec
from heliostat.models.job_fields import JOB_FIELDS, normalize_yaml_job
from heliostat.models.schedules import is_chronos_job

if TYPE_CHECKING:
    from heliostat.client import Client


def submit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - for standard input.")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait for their end; exit with the first failure.")] = False,
    no_record: Annotated[bool, typer.Option("--no-record", help="Do not note the state of the code.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Put the jobs of a YAML or JSON file into the queue.

    The file holds one job, a list of jobs, or {"jobs": [...]}, with the fields of the API: FIELDS.
    Jobs of one file may wait for one another: `after: NAME`.
    All of them are taken or none.
    Jobs of Chronos (with schedule or parents) become schedules, one after the other.
    """
    client = connect()
    asked = read_job_file(file)
    if any(is_chronos_job(job) for job in asked):
        submit_chronos_jobs(client, file, asked, as_json)
        return
    bodies = upload_job_folders(
        client, [normalize_job_fields(body, client.address.default_workdir()) for body in asked]
    )
    answer = client.submit_bodies(bodies, record=not no_record)
    ids: list[int] = answer["job_ids"]
    if as_json and not wait:
        print_json(client.jobs.get(ids[0]).data if len(bodies) == 1 and not answer["array_ids"] else answer)
    elif not as_json:
        say_or_print = print_message if wait else print
        say_or_print(f"{format_count(len(ids), 'job')} submitted: {_ranges(ids)}")
    if not wait:
        return
    try:
        jobs = client.wait(ids)
    except KeyboardInterrupt:
        print_left_running_hint(ids)
        raise typer.Exit(130) from None
    if as_json:
        print_json({**answer, "jobs": [job.data for job in jobs]})
    print_message(f"{sum(job.ok for job in jobs)} of {format_count(len(jobs), 'job')} completed.")
    raise typer.Exit(first_failed_exit_code(job.data for job in jobs))


submit.__doc__ = (submit.__doc__ or "").replace("FIELDS", ", ".join(field.name for field in JOB_FIELDS))


def read_job_file(file: str) -> list[dict[str, Any]]:
    """The jobs a file asks for, as the API takes them."""
    content = _parse(file, _read(file))
    if isinstance(content, dict) and isinstance(content.get("jobs"), list):
        if len(content) > 1:
            raise _wrong(file, "beside `jobs` there must be nothing else")
        content = content["jobs"]
    jobs = content if isinstance(content, list) else [content]
    if not jobs:
        raise _wrong(file, "there is no job in it")
    if not all(isinstance(job, dict) for job in jobs):
        raise _wrong(file, "a job is a set of fields, such as `command: python train.py`")
    return jobs


def _read(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _wrong(file, "it is not a text file") from error
    except OSError as error:
        raise _wrong(file, f"it cannot be read: {error.strerror}") from error


def _parse(file: str, text: str) -> Any:
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return json.loads(text)
        except ValueError as error:
            if file.endswith(".json"):
                raise _wrong(file, f"it is not JSON: {error}") from error
    import yaml

    class Loader(yaml.SafeLoader):
        """Leaves `1:30` as it is: YAML 1.1 would make 90 of it, a number to the base of 60."""

        def construct_yaml_int(self, node: "yaml.ScalarNode") -> Any:
            return node.value if ":" in node.value else super().construct_yaml_int(node)

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_yaml_int)
    try:
        return yaml.load(text, Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        raise _wrong(file, f"it is neither YAML nor JSON: {error}") from error


def normalize_job_fields(job: dict[str, Any], workdir: str | None) -> dict[str, Any]:
    """As the API takes it: times as text, software by content, paths from here."""
    tidy = normalize_yaml_job(job)
    if isinstance(job.get("environment"), str):
        tidy = with_environment_spec(tidy)
    if isinstance(begin := job.get("begin"), str | date):
        tidy["begin"] = normalize_begin_time(begin)
    if "workdir" not in job and "upload" not in job and workdir is not None:
        tidy["workdir"] = workdir
    elif isinstance(job.get("workdir"), str) and not job["workdir"].startswith("/") and workdir is not None:
        tidy["workdir"] = str(Path(workdir, job["workdir"]).resolve())
    return tidy


def _ranges(ids: list[int]) -> str:
    """`4-9, 12`."""
    runs: list[list[int]] = []
    for job_id in sorted(ids):
        if runs and runs[-1][1] == job_id - 1:
            runs[-1][1] = job_id
        else:
            runs.append([job_id, job_id])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _wrong(file: str, why: str) -> typer.BadParameter:
    return typer.BadParameter(f"{'standard input' if file == '-' else file}: {why}.", param_hint="FILE")


def submit_chronos_jobs(client: "Client", file: str, documents: list[dict[str, Any]], as_json: bool) -> None:
    """Parents before their children, whatever their order in the file."""
    if not all(is_chronos_job(one) for one in documents):
        raise typer.BadParameter(f"{file}: jobs of Chronos and others cannot be in one file.", param_hint="FILE")
    made = [client.schedules.put_chronos(one) for one in _in_order(documents)]
    if as_json:
        print_json(made[0] if len(made) == 1 else made)
        return
    for one in made:
        next_at = f"fires next {format_time(one['next_at'])}" if one["next_at"] else f"is {one['state']}"
        print(f"Schedule {one['id']} ({one['name']}) {next_at}.")


def _in_order(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that go in a circle come last, for the server to refuse them."""
    left, done = list(documents), []
    while ready := [one for one in left if not _waits(one, left)]:
        done += ready
        left = [one for one in left if one not in ready]
    return [*done, *left]


def _waits(one: dict[str, Any], others: list[dict[str, Any]]) -> bool:
    parents = one.get("parents") or []
    return isinstance(parents, list) and any(other.get("name") in parents for other in others)
