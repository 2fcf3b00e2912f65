"""`helio rerun`, `helio diff` and `helio show --record`: repeat jobs and compare them."""

import json
from typing import Annotated, Any

import typer

from heliostat.cli.connection import connect
from heliostat.cli.job_wait import report_submitted_job
from heliostat.cli.output import (
    Column,
    JsonFlag,
    format_count,
    print_fields,
    print_json,
    print_message,
    print_table,
    sanitize_text,
)
from heliostat.cli.uploads import upload_with_progress
from heliostat.models.provenance import COMPARISON_SECTIONS

_MAX_CELL_LENGTH = 60
_Pairs = list[tuple[str, str]]


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


def diff(
    first: Annotated[int, typer.Argument(metavar="A")],
    second: Annotated[int, typer.Argument(metavar="B")],
    as_json: JsonFlag = False,
) -> None:
    """Show the differences between two jobs.

    Compares request, code, node, result and time. For environment variables it shows names, never values.
    """
    compared = connect().jobs.diff(first, second)
    if as_json:
        print_json(compared)
        return
    columns = (Column(""), Column(f"JOB {first}", shrinkable=True), Column(f"JOB {second}", shrinkable=True))
    for section, title in COMPARISON_SECTIONS.items():
        rows = [difference for difference in compared["differences"] if difference["section"] == section]
        if not rows:
            continue
        print(f"{title}:")
        print_table(
            columns,
            (
                [difference["field"], _short(difference["first"]), _short(difference["second"])]
                for difference in rows
            ),
        )
        print()
    same = [COMPARISON_SECTIONS[section].lower() for section in compared["same"]]
    print(f"Identical: {', '.join(same)}." if same else "No section is identical.")


def print_provenance(job: int, as_json: bool) -> None:
    """The record of a job's code, nodes and request."""
    record = connect().jobs.provenance(job)
    if as_json:
        print_json(record)
        return
    print_fields(_record_facts(record))
    if record["code"] and record["code"]["diff"]:
        print(f"\nUncommitted changes{' (truncated)' if record['code']['is_diff_cut'] else ''}:")
        print("\n".join(sanitize_text(line.expandtabs()) for line in record["code"]["diff"].splitlines()))


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


def _record_facts(record: dict[str, Any]) -> _Pairs:
    facts: list[tuple[str, object]] = [("Job", record["job_id"]), ("Rerun of", record["rerun_of"])]
    facts += _code_facts(record["code"] or {}) + _upload_facts(record["upload"])
    for attempt in record["machines"]:
        facts.append((f"Attempt {attempt['attempt']}", f"on {', '.join(attempt['nodes'])}"))
        facts += [("GPUs", ", ".join(attempt["gpus"])), ("Driver", attempt["driver"])]
        facts += [("Image digest", attempt["image_digest"]), ("Environment", attempt["environment"])]
        facts += [("Dataset", dataset) for dataset in attempt.get("datasets", ())]
        facts.append(("Heliostat", attempt["heliostat"]))
    facts.append(("Variables", ", ".join(record["request"]["env"])))
    facts.append(("Reruns", ", ".join(map(str, record["reruns"]))))
    facts.append(("Run again", f"helio rerun {record['job_id']}"))
    return [(name, str(value)) for name, value in facts if value]


def _code_facts(code: dict[str, Any]) -> list[tuple[str, object]]:
    untracked = code.get("untracked_count") or 0
    return [
        ("Folder", code.get("folder")),
        ("Commit", code.get("commit")),
        ("Branch", code.get("branch")),
        ("Remote", code.get("remote")),
        (
            "Uncommitted",
            f"{format_count(code['diff'].count(chr(10)), 'line')} of diff" if code.get("diff") else None,
        ),
        (
            "Not in git",
            f"{format_count(untracked, 'file')}: {', '.join(code['untracked'][:5])}" if untracked else None,
        ),
    ]


def _upload_facts(upload: dict[str, Any] | None) -> list[tuple[str, object]]:
    if upload is None:
        return []
    if not upload["is_there"]:
        return [("Uploaded code", f"{upload['id'][:12]}, deleted since")]
    return [("Uploaded code", f"{upload['id'][:12]}, {format_count(upload['files'], 'file')}")]


def _short(text: str) -> str:
    line, *more = text.split("\n") if text else ["-"]
    short = line if len(line) <= _MAX_CELL_LENGTH else f"{line[: _MAX_CELL_LENGTH - 1]}…"
    return f"{short} (+{format_count(len(more), 'line')})" if more else short
