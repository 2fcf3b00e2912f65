"""`helio rerun`: submits a job again."""

import json
from typing import Annotated, Any

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import (
    JsonFlag,
    print_message,
)
from heliostat.cli.submitted_job_report import report_submitted_job
from heliostat.cli.uploads import upload_with_progress


def rerun(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a field: gpus=2, env.SEED=7, name=null. May be repeated."),
    ] = None,
    upload: Annotated[str | None, typer.Option(help="Use the code in this folder instead.")] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until the job ends; exit with its exit code.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print its output until it ends; exit with its exit code.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Submit a job again with the same request and code.

    --set changes fields: helio rerun 12 --set gpus=2 --set env.SEED=7
    """
    client = connect()
    changed_fields = parse_changes(changes or [])
    if upload is not None:
        changed_fields["upload"] = upload_with_progress(client, upload)
    response = client.jobs.rerun(job, **changed_fields)
    for note in response["notes"]:
        print_message(note)
    report_submitted_job(client, client.jobs.get(response["job"]["id"]), wait, follow, as_json)


def parse_changes(texts: list[str]) -> dict[str, Any]:
    """`gpus=2`: a value that is valid JSON is parsed, any other is text. Values of `env.NAME` are text or null."""
    changes: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r} is not FIELD=VALUE.", param_hint="--set")
        if name.startswith("env."):
            changes.setdefault("env", {})[name.removeprefix("env.")] = None if value == "null" else value
        else:
            changes[name] = _value(value)
    return changes


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
