"""Commands that repeat jobs and say what differed."""

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

_LONGEST = 60
_Pairs = list[tuple[str, str]]


def rerun(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="FIELD=VALUE: gpus=2, env.SEED=7, name=null. May repeat.")
    ] = None,
    upload: Annotated[str | None, typer.Option(help="With this folder's code instead.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end; exit with its code.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print its output; exit with its code.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Repeat a job: the same request, the same code.

    But for what --set changes. helio rerun 12 --set gpus=2 --set env.SEED=7
    """
    client = connect()
    wanted = parse_changes(changes or [])
    if upload is not None:
        wanted["upload"] = upload_with_progress(client, upload)
    answer = client.jobs.rerun(job, **wanted)
    for note in answer["notes"]:
        print_message(note)
    report_submitted_job(client, client.jobs.get(answer["job"]["id"]), wait, follow, as_json)


def diff(
    first: Annotated[int, typer.Argument(metavar="A")],
    second: Annotated[int, typer.Argument(metavar="B")],
    as_json: JsonFlag = False,
) -> None:
    """Say what differed between two jobs.

    Request, code, machine, result and time. Of environment variables it says which differ, never their values.
    """
    compared = connect().jobs.diff(first, second)
    if as_json:
        print_json(compared)
        return
    columns = (Column(""), Column(f"JOB {first}", shrinkable=True), Column(f"JOB {second}", shrinkable=True))
    for section, title in COMPARISON_SECTIONS.items():
        rows = [one for one in compared["differences"] if one["section"] == section]
        if not rows:
            continue
        print(f"{title}:")
        print_table(columns, ([one["field"], _short(one["first"]), _short(one["second"])] for one in rows))
        print()
    same = [COMPARISON_SECTIONS[section].lower() for section in compared["same"]]
    print(f"The same: {', '.join(same)}." if same else "Nothing is the same.")


def print_provenance(job: int, as_json: bool) -> None:
    """What is kept to repeat a job."""
    record = connect().jobs.provenance(job)
    if as_json:
        print_json(record)
        return
    print_fields(_record_facts(record))
    if record["code"] and record["code"]["diff"]:
        print(f"\nUncommitted then{', cut' if record['code']['is_diff_cut'] else ''}:")
        print("\n".join(sanitize_text(line.expandtabs()) for line in record["code"]["diff"].splitlines()))


def parse_changes(texts: list[str]) -> dict[str, Any]:
    """`gpus=2`: what reads as JSON is that, anything else is text; of `env.NAME` always text, but for null."""
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
    facts: list[tuple[str, object]] = [("Job", record["job_id"]), ("Repeats", record["rerun_of"])]
    facts += _code_facts(record["code"] or {}) + _upload_facts(record["upload"])
    for machine in record["machines"]:
        facts.append((f"Attempt {machine['attempt']}", f"on {', '.join(machine['nodes'])}"))
        facts += [("GPUs", ", ".join(machine["gpus"])), ("Driver", machine["driver"])]
        facts += [("Image digest", machine["image_digest"]), ("Environment", machine["environment"])]
        facts += [("Dataset", dataset) for dataset in machine.get("datasets", ())]
        facts.append(("Heliostat", machine["heliostat"]))
    facts.append(("Variables", ", ".join(record["request"]["env"])))
    facts.append(("Repeated by", ", ".join(map(str, record["reruns"]))))
    facts.append(("Repeat it", f"helio rerun {record['job_id']}"))
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
        return [("Uploaded code", f"{upload['id'][:12]}, not there any more")]
    return [("Uploaded code", f"{upload['id'][:12]}, {format_count(upload['files'], 'file')}")]


def _short(text: str) -> str:
    line, *more = text.split("\n") if text else ["-"]
    cut = line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
    return f"{cut} (+{format_count(len(more), 'line')})" if more else cut
