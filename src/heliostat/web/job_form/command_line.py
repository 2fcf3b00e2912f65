"""The line for a terminal that asks for the same job. Whatever is in it, a shell reads it as it was meant."""

import json
import posixpath
import shlex

from heliostat.web.job_form.bodies import Body, duration_text

_OPTIONS = {
    "gpus": "--gpus",
    "gpu_type": "--gpu-type",
    "gpu_memory": "--gpu-memory",
    "cpus": "--cpus",
    "memory": "--memory",
    "time_limit": "--time",
    "overtime": "--overtime",
    "tasks": "--tasks",
    "layout": "--layout",
    "exclusive": "--exclusive",
    "labels": "--label",
    "reservation": "--reservation",
    "name": "--name",
    "project": "--project",
    "array": "--array",
    "env": "--env",
    "workdir": "--workdir",
    "priority": "--priority",
    "priority_class": "--class",
    "preemptible": "--preemptible",
    "preempt_signal": "--preempt-signal",
    "after": "--after",
    "after_any": "--after-any",
    "after_failed": "--after-failed",
    "after_each": "--after-each",
    "begin": "--begin",
    "held": "--hold",
    "max_retries": "--max-retries",
    "retry_on": "--retry-on",
    "retry_delay": "--retry-delay",
    "notify": "--notify",
    "grace_seconds": "--grace",
    "image": "--image",
    "runtime": "--runtime",
    "mounts": "--mount",
    "network": "--network",
    "upload": "--upload",
    "template": "--template",
    "environment": "--env",
}


def command_line(body: Body) -> str:
    """`helio run …`; where that cannot say it exactly, `helio submit` with the whole body."""
    if not _can_be_said(body):
        return f"printf %s {_quote(_in_ascii(body))} | helio submit -"
    words = ["helio", "run", *_options(body)]
    if "script" in body:
        words += ["--script", "-"]
    if command := _command_words(body):
        words += ["--", *command]
    line = " ".join(map(_quote, words))
    return f"printf %s {_quote(body['script'])} | {line}" if "script" in body else line


def _can_be_said(body: Body) -> bool:
    command, workdir = body.get("command", []), body.get("workdir")
    texts = [body.get("script", ""), *_command_words(body), *_options(body)]
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


def _options(body: Body) -> list[str]:
    words: list[str] = []
    for name, option in _OPTIONS.items():
        if name not in body:
            continue
        value = body[name]
        if value is True:
            words.append(option)
        else:
            for text in _values(name, value):
                words += [f"{option}={text}"] if text.startswith("-") else [option, text]
    return words


def _values(name: str, value: object) -> list[str]:
    if name == "environment":
        return [f"@{value}"]
    if isinstance(value, dict):
        return [f"{key}={text}" for key, text in value.items()]
    if isinstance(value, list):
        return [str(one) for one in value]
    if name == "grace_seconds" and isinstance(value, int | float):
        return [duration_text(value)]
    return [str(value)]


def _command_words(body: Body) -> list[str]:
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


def _in_ascii(body: Body) -> str:
    return json.dumps(body).replace("\x7f", "\\u007f")
