"""The line for a terminal that asks for the same job. Whatever is in it, a shell reads it as it was meant."""

import json
import posixpath
import shlex
from collections.abc import Iterable, Sequence

from heliostat.models.job_fields import JOB_FIELDS, JobField
from heliostat.web.job_form.job_body import JobBodyDict, duration_text


def build_command_line(body: JobBodyDict, fields: Sequence[JobField] = JOB_FIELDS) -> str:
    """`helio run …`; where that cannot say it exactly, `helio submit` with the whole body."""
    options = _options(body, fields)
    if not _can_be_said(body, options):
        return f"printf %s {_quote(_in_ascii(body))} | helio submit -"
    words = ["helio", "run", *options]
    if "script" in body:
        words += ["--script", "-"]
    if command := _command_words(body):
        words += ["--", *command]
    line = " ".join(map(_quote, words))
    return f"printf %s {_quote(body['script'])} | {line}" if "script" in body else line


def _can_be_said(body: JobBodyDict, options: list[str]) -> bool:
    command, workdir = body.get("command", []), body.get("workdir")
    texts = [body.get("script", ""), *_command_words(body), *options]
    is_read_as_a_line = isinstance(command, list) and len(command) == 1 and _has_blank(command[0])
    return not (
        (is_read_as_a_line and "script" not in body)
        or (workdir is not None and posixpath.normpath(workdir) != workdir)
        or body.get("grace_seconds", 0) % 1
        or isinstance(body.get("environment"), dict)
        or any(not _is_plain(text) for text in texts)
    )


def _is_plain(text: str) -> bool:
    """A terminal into which it is pasted shows it and does nothing else."""
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
        return [str(one) for one in value]
    if field.kind == "seconds" and isinstance(value, int | float):
        return [duration_text(value)]
    return [str(value)]


def _command_words(body: JobBodyDict) -> list[str]:
    """`helio run` takes one word with a blank in it for a shell line, and all else for words."""
    command = body.get("command", [])
    if isinstance(command, list):
        return command
    return [command] if _has_blank(command) else ["/bin/sh", "-c", command]


def _has_blank(text: str) -> bool:
    return any(letter.isspace() for letter in text)


def _quote(word: str) -> str:
    quoted = shlex.quote(word)
    return f"'{word}'" if quoted == word and word.startswith("=") else quoted  # zsh looks for a program =NAME


def _in_ascii(body: JobBodyDict) -> str:
    return json.dumps(body).replace("\x7f", "\\u007f")
