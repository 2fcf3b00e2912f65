"""Writes what is made from the table of job fields: the client's types, and tables of the documentation.

Run it after a change of `src/heliostat/models/job_fields.py`; a test says when it was forgotten.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from heliostat.cli.job_options import option_help, option_metavar
from heliostat.cli.schedules import SHORT_FLAGS
from heliostat.models.job_fields import JOB_FIELDS, FieldKind, JobField

ROOT = Path(__file__).parents[1]
COMMANDS = {
    "run": ("run",),
    "when": ("when",),
    "session": ("notebook", "session start"),
    "notebook": ("notebook run",),
    "service": ("service run",),
    "schedule": ("schedule create",),
}
"""By the table's word for them, the commands of `helio`."""
_LONGEST_LINE = 115
_BEGIN = "# scripts/generate_job_fields.py makes these from the table of job fields.\n"
_END = "# End of what is made.\n"
_TYPES: dict[FieldKind, str] = {
    "command": "str | Sequence[str]",
    "script": "str | PathLike[str]",
    "count": "int",
    "gpus": "float",
    "memory": "str | int",
    "duration": "str | int",
    "seconds": "float",
    "flag": "bool",
    "begin": "datetime | timedelta | str",
    "labels": "Sequence[str]",
    "causes": "str | Sequence[str]",
    "triggers": "str | Sequence[str]",
    "parents": "ParentJobs",
    "mounts": "Sequence[str]",
    "variables": "Mapping[str, str]",
    "folder": "str | PathLike[str]",
    "upload": "str | PathLike[str]",
    "software": "str | PathLike[str] | Mapping[str, str]",
    "code": "bool",
}


def main() -> None:
    for path, text in generate_files(JOB_FIELDS).items():
        path.write_text(text, encoding="utf-8")


def generate_files(fields: Sequence[JobField]) -> dict[Path, str]:
    """The whole text of each file in which something is made."""
    shapes, cli, researchers = (
        ROOT / name for name in ("src/heliostat/client/api_types.py", "docs/cli.md", "docs/researchers.md")
    )
    before, _, rest = shapes.read_text("utf-8").partition(_BEGIN)
    after = rest.partition(_END)[2]
    commands = cli.read_text("utf-8")
    for word, names in COMMANDS.items():
        for name in names:
            commands = replace_rows(commands, f"helio {name}", list(option_rows(fields, word)))
    return {
        shapes: f"{before}{_BEGIN}\n\n{typed_dicts(fields)}\n\n{_END}{after}",
        cli: commands,
        researchers: replace_table(researchers.read_text("utf-8"), "Every field", field_table(fields)),
    }


def typed_dicts(fields: Iterable[JobField]) -> str:
    """`submit` has the command and the array as parameters, and the other fields as options."""
    own = ("command", "array")
    options = [line for field in fields if field.kind not in own for line in _typed(field)]
    both = [line for field in fields if field.kind in own for line in _typed(field)]
    lines = [
        "class JobOptions(TypedDict, total=False):",
        '    """What can be said about a job besides its command. Left out: the server\'s default."""',
        "",
        *options,
        *("", ""),
        "class JobFields(JobOptions, total=False):",
        '    """One job of `submit_many`."""',
        "",
        *both,
    ]
    return "\n".join(lines) + "\n"


def field_table(fields: Iterable[JobField]) -> str:
    lines = ["| field | default | option | meaning |", "|---|---|---|---|"]
    for field in fields:
        option = f"`{field.cli_flags[0]}`" if field.cli_commands or field.kind == "software" else ""
        lines.append(f"| `{field.name}` | {_default(field)} | {option} | {_meaning(field)} |")
    return "\n".join(lines) + "\n"


def option_rows(fields: Iterable[JobField], command: str) -> Iterator[str]:
    """The rows of a command's options, as `docs/cli.md` has them."""
    for field in fields:
        if command in field.cli_commands:
            value = f" {metavar}" if (metavar := option_metavar(field)) else ""
            names = [f"`{flag}{value}`" for flag in field.cli_flags]
            if command == "schedule" and field.name in SHORT_FLAGS:
                names.append(f"`{SHORT_FLAGS[field.name]}`")
            yield f"| {', '.join(names)} | {option_help(field)} |"


def replace_rows(page: str, heading: str, rows: Sequence[str]) -> str:
    """The page with these rows first in the table under a heading, instead of those of the same options."""
    start, end = _section(page, heading)
    names = {row.split("`")[1].split()[0] for row in rows}
    lines = page[start:end].split("\n")
    top = lines.index("| option | |") + 2
    kept = [
        line for line in lines[top:] if not (line.startswith("| `--") and line.split("`")[1].split()[0] in names)
    ]
    return page[:start] + "\n".join([*lines[:top], *rows, *kept]) + page[end:]


def replace_table(page: str, heading: str, table: str) -> str:
    """The page with this table under a heading, instead of the first one there."""
    start, end = _section(page, heading)
    section = re.sub(r"(^\|.*\n)+", lambda _: table, page[start:end], count=1, flags=re.MULTILINE)
    return page[:start] + section + page[end:]


def _section(page: str, heading: str) -> tuple[int, int]:
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", page, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"there is no heading {heading!r}")
    return found.start(1), found.end(1)


def _typed(field: JobField) -> list[str]:
    known = f"    {field.python_name}: {_TYPES.get(field.kind, 'str')} | None"
    line = f"{known}  # {field.help_with_choices}"
    return [line] if len(line) <= _LONGEST_LINE else [f"    # {field.help_with_choices}", known]


def _default(field: JobField) -> str:
    if field.default_text or isinstance(field.default, bool):
        return field.default_text or str(field.default).lower()
    return "none" if field.default in (None, [], {}, ()) else f"{field.default}"


def _meaning(field: JobField) -> str:
    words = [field.help]
    if field.choices:
        words.append("One of " + ", ".join(_choice(value, meaning) for value, meaning in field.choices) + ".")
    if field.kind in ("count", "seconds"):
        words.append(" ".join(filter(None, (f"{field.minimum} to {field.maximum}", field.unit))) + ".")
    if field.details:
        words.append(field.details)
    if field.alias:
        words.append(f"Also written `{field.alias}`, never both.")
    return " ".join(words)


def _choice(value: str, meaning: str) -> str:
    return f"`{value}` ({meaning})" if meaning else f"`{value}`"


if __name__ == "__main__":
    main()
