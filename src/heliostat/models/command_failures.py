"""Explains exit code 127: the command that was not found, from what a shell or a runtime has printed. Pure."""

import re

NOT_FOUND_EXIT_CODE = 127
_QUOTES = "`'\"\u2018\u2019"  # env quotes with the last two
_NAME = rf"[{_QUOTES}]?(?P<name>[^\s:{_QUOTES}]{{1,100}})[{_QUOTES}]?"
_MAX_LINES, _MAX_LENGTH = 20, 300
_PATTERNS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"executable file {_NAME}:? not found",  # crun
        rf"exec:? {_NAME}: executable file not found",  # runc
        rf"^(?:\S+: )*(?:\d+: |line \d+: )*(?:exec: )?{_NAME}: (?:command )?not found$",  # sh, bash
        rf"^\S+: command not found: {_NAME}$",  # zsh
        rf"^(?:\S+: )+(?:line \d+: )?(?:exec: )?{_NAME}: (?:cannot execute: )?No such file or directory$",  # env
        rf"failed to execute {_NAME}",  # setpriv
    )
)
_PYTHON_NAMES = {"python": "python3", "pip": "pip3"}


def explain_command_not_found(output: str, place: str) -> str:
    """`output`: the end of its standard error. `place`: "on this node", "in its image"."""
    name = _find_name(output)
    if name is None:
        return f"exit code {NOT_FOUND_EXIT_CODE}: a command was not found {place}"
    return f"{name}: not found {place}; {_hint(name)}"


def _find_name(output: str) -> str | None:
    """The last one that is named."""
    for line in reversed(output.splitlines()[-_MAX_LINES:]):
        for pattern in _PATTERNS:
            if match := pattern.search(line[:_MAX_LENGTH]):
                return match["name"]
    return None


def _hint(name: str) -> str:
    if name in _PYTHON_NAMES:
        return f"try {_PYTHON_NAMES[name]} or --env"
    if "/" in name:
        return "check the path and the first line of the file"
    return "check the name, or provide it with --env or --image"
