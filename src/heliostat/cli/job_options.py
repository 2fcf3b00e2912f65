"""Command-line options for the fields of a job, generated from `JOB_FIELDS`, and the parsing of their values."""

import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from heliostat.cli.job_defaults import merge_job_fields, read_job_defaults
from heliostat.cli.typer_converters import install_light_converters
from heliostat.cli.value_format import parse_duration_option
from heliostat.models.job_fields import JOB_FIELDS, FieldKind, JobField

CommandFunction = Callable[..., None]
_METAVARS: dict[FieldKind, str] = {
    "script": "FILE",
    "count": "N",
    "gpus": "N",
    "memory": "SIZE",
    "duration": "TIME",
    "seconds": "TIME",
    "array": "RANGE",
    "begin": "TIME",
    "causes": "CAUSES",
    "triggers": "TRIGGERS",
    "parents": "JOBS",
    "mounts": "SRC:DST[:ro]",
    "variables": "K=V",
    "folder": "FOLDER",
    "upload": "FOLDER",
}
_LISTS = ("labels", "causes", "triggers", "parents", "mounts", "variables")
IsolateOption = Annotated[bool, typer.Option("--isolate", help="The same as --runtime bubblewrap.")]
_TYPES: dict[FieldKind, Any] = {"count": int | None, "gpus": float | None, "flag": bool}


def job_options(
    command: str,
    fields: Sequence[JobField] = JOB_FIELDS,
    short: Mapping[str, str] | None = None,
    *,
    with_defaults: bool = True,
) -> Callable[[CommandFunction], CommandFunction]:
    """Adds to a command the options of its job fields. The parsed values, and by default the user's defaults, are
    passed as its parameter `job`."""
    fields_of_command = [field for field in fields if command in field.cli_commands]

    def decorate(function: CommandFunction) -> CommandFunction:
        @wraps(function)
        def with_options(**given: Any) -> None:
            values = [(field, given.pop(field.name)) for field in fields_of_command]
            defaults = read_job_defaults(fields_of_command) if with_defaults else {}
            function(**given, job=merge_job_fields(defaults, read_job_options(values)))

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(function).parameters.values():
            options = [_option(field, (short or {}).get(field.name)) for field in fields_of_command]
            parameters += (
                options if parameter.name == "job" else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]
            )
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return with_options

    return decorate


def option_metavar(field: JobField) -> str | None:
    """None: the option takes no value."""
    return (
        None if field.kind == "flag" else _METAVARS.get(field.kind, field.cli_flags[0].rpartition("-")[2].upper())
    )


def option_help(field: JobField) -> str:
    text = field.cli_help or field.help_with_choices
    return f"{text} May be repeated." if field.kind in _LISTS else text


def read_job_options(values: Iterable[tuple[JobField, Any]]) -> dict[str, Any]:
    """Parsed values by their name in the Python client, without options that were not given."""
    job: dict[str, Any] = {}
    for field, value in values:
        if value is None or value is False or value in ([], ()):
            continue
        if field.kind == "variables":
            job |= _environment(value)
        else:
            job[field.python_name] = _READ[field.kind](value, field.cli_flags[0]) if field.kind in _READ else value
    return job


def parse_option_words(words: Sequence[str]) -> dict[str, Any]:
    """Reads words as options of `helio run`, by their name in the Python client. Raises TyperException."""
    found: dict[str, Any] = {}

    @job_options("run", with_defaults=False)
    def collect(*, job: dict[str, Any], isolate: IsolateOption = False) -> None:
        found.update(isolate_job(job) if isolate else job)

    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(collect)
    command = get_command(app)
    install_light_converters(command)
    command.main(list(words), prog_name="helio run", standalone_mode=False)
    return found


def parse_command(words: Sequence[str] | None, *, has_script: bool = False) -> str | list[str] | None:
    """A single word with blanks is a shell line, as with ssh. With a script, the words are its arguments."""
    if words and not has_script and len(words) == 1 and any(char.isspace() for char in words[0]):
        return words[0]
    return list(words) if words else None


def isolate_job(job: dict[str, Any]) -> dict[str, Any]:
    """The job of --isolate."""
    if "image" in job or job.get("runtime", "bubblewrap") != "bubblewrap":
        raise typer.BadParameter(
            "--isolate means --runtime bubblewrap, which takes no image.", param_hint="--isolate"
        )
    return {**job, "runtime": "bubblewrap"}


def normalize_begin_time(given: str | date, _option: str = "") -> str:
    """ISO 8601; a time without a zone is local time. Also accepts the dates and times that YAML parses itself."""
    text = given.isoformat() if isinstance(given, date) else given.strip()
    try:
        return text if text.startswith("+") else datetime.fromisoformat(text).astimezone().isoformat()
    except (ValueError, OverflowError):
        return text  # the server explains what is wrong


def _option(field: JobField, short: str | None) -> inspect.Parameter:
    kind = list[str] | None if field.kind in _LISTS else _TYPES.get(field.kind, str | None)
    names = (*field.cli_flags, *([short] if short else []))
    option = typer.Option(*names, metavar=option_metavar(field), help=option_help(field))
    default = False if field.kind == "flag" else None
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def _words(given: Sequence[str], _option: str) -> list[str]:
    """Values of an option that may be repeated and may list several: `--after 12,13 --after array:5`."""
    return [word.strip() for text in given for word in text.split(",") if word.strip()]


def _script(name: str, option: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{name} is not a text file.", param_hint=option) from error
    except OSError as error:
        raise typer.BadParameter(f"{name} cannot be read: {error.strerror}.", param_hint=option) from error


def _duration(text: str, option: str) -> str:
    parse_duration_option(text, option)
    return text


def _mount(text: str) -> str:
    """Makes the source of `data:/data` absolute. Without a destination, it is the same path in the container."""
    source, _, rest = text.partition(":")
    source = _absolute(source)
    return f"{source}:{rest}" if rest.startswith("/") else f"{source}:{source}:{rest}".rstrip(":")


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _environment(given: Sequence[str]) -> dict[str, Any]:
    """`--env` sets variables (`K=V`, `K`) or software (`requirements.txt`, `image:python`, `@3fa9c1b2`)."""
    env: dict[str, str] = {}
    software: list[str] = []
    for item in given:
        name, equals, value = item.partition("=")
        if not equals and any(sign in name for sign in ".:@/"):
            software.append(name)
        elif not equals and name not in os.environ:
            raise typer.BadParameter(
                f"The variable {name} is not set here. Write {name}=VALUE.", param_hint="--env"
            )
        else:
            env[name] = value if equals else os.environ[name]
    if len(software) > 1:
        raise typer.BadParameter("A job can have only one software environment.", param_hint="--env")
    return ({"env": env} if env else {}) | ({"environment": software[0]} if software else {})


_READ: dict[FieldKind, Callable[[Any, str], Any]] = {
    "script": _script,
    "gpus": lambda number, _: int(number) if number.is_integer() else number,
    "duration": _duration,
    "seconds": parse_duration_option,
    "begin": normalize_begin_time,
    "causes": _words,
    "triggers": _words,
    "parents": _words,
    "mounts": lambda texts, _: [_mount(text) for text in texts],
    "folder": lambda path, _: _absolute(path),
}
