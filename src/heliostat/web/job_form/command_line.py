"""Shell command that submits the same job, quoted safely."""

import json
import posixpath
import shlex
from collections.abc import Iterable, Sequence

from heliostat.models.job_fields import JOB_FIELDS, JobField
from heliostat.web.job_form.request_to_body import JobBodyDict, duration_text


def build_command_line(body: JobBodyDict, fields: Sequence[JobField] = JOB_FIELDS) -> str:
    """`helio run …`; if its options cannot express the job exactly, `helio submit` with the whole body."""
    options = _options(body, fields)
    if not _is_expressible(body, options):
        return f"printf %s {_quote(_ascii_json(body))} | helio submit -"
    words = ["helio", "run", *options]
    if "script" in body:
        words += ["--script", "-"]
    if command := _command_words(body):
        words += ["--", *command]
    line = " ".join(map(_quote, words))
    return f"printf %s {_quote(body['script'])} | {line}" if "script" in body else line


def _is_expressible(body: JobBodyDict, options: list[str]) -> bool:
    command, workdir = body.get("command", []), body.get("workdir")
    texts = [body.get("script", ""), *_command_words(body), *options]
    is_parsed_as_shell_line = isinstance(command, list) and len(command) == 1 and _has_whitespace(command[0])
    return not (
        (is_parsed_as_shell_line and "script" not in body)
        or (workdir is not None and posixpath.normpath(workdir) != workdir)
        or body.get("grace_seconds", 0) % 1
        or isinstance(body.get("environment"), dict)
        or any(not _is_plain(text) for text in texts)
    )


def _is_plain(text: str) -> bool:
    """No control characters, which a terminal would interpret when pasted."""
    return all(letter.isprintable() or letter in "\n\t" for letter in text)


def _options(body: JobBodyDict, fields: Iterable[JobField]) -> list[str]:
    words: list[str] = []
    for field in fields:
        if field.name not in body or field.kind in ("command", "script", "code"):
            continue
        option, value = field.cli_flags[0], body[field.name]
        if value is True:
            words.append(option)
        else:
            for text in _values(field, value):
                words += [f"{option}={text}"] if text.startswith("-") else [option, text]
    return words


def _values(field: JobField, value: object) -> list[str]:
    if field.kind == "software":
        return [f"@{value}"]
    if isinstance(value, dict):
        return [f"{key}={text}" for key, text in value.items()]
    if isinstance(value, list):
        return [str(item) for item in value]
    if field.kind in ("duration", "seconds") and str(value).replace(".", "", 1).isdecimal():
        return [duration_text(float(str(value)))]
    return [str(value)]


def _command_words(body: JobBodyDict) -> list[str]:
    """`helio run` treats a single argument with whitespace as a shell line, and other arguments as words."""
    command = body.get("command", [])
    if isinstance(command, list):
        return command
    return [command] if _has_whitespace(command) else ["/bin/sh", "-c", command]


def _has_whitespace(text: str) -> bool:
    return any(letter.isspace() for letter in text)


def _quote(word: str) -> str:
    quoted = shlex.quote(word)
    return (
        f"'{word}'" if quoted == word and word.startswith("=") else quoted
    )  # zsh expands =NAME to the path of a program


def _ascii_json(body: JobBodyDict) -> str:
    return json.dumps(body).replace("\x7f", "\\u007f")
