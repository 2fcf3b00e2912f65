"""Shell lines that run a command, for the scripts of engines. All user input is quoted.

Values that are known only where the script runs are placeholders in words, paths and values:
`placeholder("folder")` becomes the value of the script's variable `folder`, within the same word.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from shlex import quote

from heliostat.runtimes.contract import LOCK_DESCRIPTOR, SEALED_DESCRIPTOR, SEALED_PATH, RuntimeCommand

_PLACEHOLDER = re.compile(r"\0(\w+)\0", re.ASCII)  # user input cannot contain NUL


def placeholder(variable: str) -> str:
    return f"\0{variable}\0"


def has_placeholder(text: str) -> bool:
    return "\0" in text


def quote_word(word: str) -> str:
    return _expand_placeholders(quote(word)) if has_placeholder(word) else quote(word)


def setup_lines(command: RuntimeCommand) -> list[str]:
    """Run once, before all tasks. The tool gets its own environment."""
    before = [f"{_expand_placeholders(command.setup_line)} || exit 125"] if command.setup_line else []
    return [*export_lines(command.tool_variables), "cd /", *before]


def lock_lines(command: RuntimeCommand, code: int) -> list[str]:
    """Lock the command's lock file; run before `setup_lines`, in the shell that becomes the tool or outlives it.
    Exits with `code` on failure.

    Opening the file for writing updates its modification time, which is the time of the last use.
    """
    if not command.lock_file:
        return []
    name, folder = quote_word(command.lock_file), quote_word(posixpath.dirname(command.lock_file))
    create = f"{{ [ -d {folder} ] || mkdir -m 700 -p {folder}; }} && : >{name}"
    return [
        f"{{ {create}; }} || exit {code}",
        f"exec {LOCK_DESCRIPTOR}<{name} && flock -s {LOCK_DESCRIPTOR} || exit {code}",
    ]


def octal_escapes(content: bytes) -> str:
    """The content as an argument of the shell's `printf`."""
    return "".join(f"\\{byte:03o}" for byte in content)


def seal_lines(text: str, file: str) -> list[str]:
    """Open the sealed text on its descriptor, for engines that cannot pass descriptors. `text`: a shell word for
    `printf`. The file is removed at once."""
    name = quote_word(file)
    return [
        f"(umask 077; printf {text} >{name}) || exit 126",
        f"exec {SEALED_DESCRIPTOR}<{name}",
        f"rm -f -- {name}",
    ]


def run_line(command: RuntimeCommand, through: str = "") -> str:
    """Run the task, `through` a prefix of shell words. Each task opens the sealed text again."""
    run = exec_line(command.argv, through)
    return "; ".join([*export_lines(command.task_variables), f"{run} {SEALED_DESCRIPTOR}<{SEALED_PATH}"])


def exec_line(words: Sequence[str], through: str = "") -> str:
    return " ".join(["exec", *([through] if through else []), *map(quote_word, words)])


def export_lines(environment: Mapping[str, str]) -> list[str]:
    return [f"export {name}={quote_word(value)}" for name, value in environment.items()]


def export_line(environment: Mapping[str, str]) -> str:
    """All variables in one export command."""
    return " ".join(["export", *(f"{name}={quote_word(value)}" for name, value in environment.items())])


def _expand_placeholders(text: str) -> str:
    """Expand placeholders in quoted words, where they are within single quotes."""
    return _PLACEHOLDER.sub(r"""'"$\1"'""", text)
