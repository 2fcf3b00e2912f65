"""`helio show --record`: the provenance of a job."""

from typing import Any

from heliostat.cli.connection import connect
from heliostat.cli.output import (
    format_count,
    print_fields,
    print_json,
    sanitize_text,
)

_Pairs = list[tuple[str, str]]


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
