"""The lines of shell that run a command, for scripts that engines hand over. All that people typed is quoted.

What is known only where a script runs is left blank in words, paths and values: `blank("folder")` becomes what the
variable `folder` of the script holds there, whatever that is, as a part of the same word.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from shlex import quote

from heliostat.runtimes.contract import LOCK_DESCRIPTOR, SEALED_DESCRIPTOR, SEALED_PATH, RuntimeCommand

_BLANK = re.compile(r"\0(\w+)\0", re.ASCII)  # nothing a person can pass on holds a NUL


def placeholder(variable: str) -> str:
    return f"\0{variable}\0"


def has_placeholder(text: str) -> bool:
    return "\0" in text


def quote_word(word: str) -> str:
    return _filled(quote(word)) if has_placeholder(word) else quote(word)


def setup_lines(command: RuntimeCommand) -> list[str]:
    """Once, before all tasks. The tool runs with an environment of its own."""
    before = [f"{_filled(command.setup_line)} || exit 125"] if command.setup_line else []
    return [*export_lines(command.tool_variables), "cd /", *before]


def lock_lines(command: RuntimeCommand, code: int) -> list[str]:
    """Before the prelude, in the shell that becomes the tool or outlives it. Leaves with this code if it cannot.

    That it was opened for writing says when it was last used.
    """
    if not command.lock_file:
        return []
    name, folder = quote_word(command.lock_file), quote_word(posixpath.dirname(command.lock_file))
    made = f"{{ [ -d {folder} ] || mkdir -m 700 -p {folder}; }} && : >{name}"
    return [
        f"{{ {made}; }} || exit {code}",
        f"exec {LOCK_DESCRIPTOR}<{name} && flock -s {LOCK_DESCRIPTOR} || exit {code}",
    ]


def octal_escapes(content: bytes) -> str:
    """As `printf` of the shell writes it again."""
    return "".join(f"\\{byte:03o}" for byte in content)


def seal_lines(text: str, file: str) -> list[str]:
    """Puts the sealed text, a word of the shell that holds it for `printf`, onto its descriptor, for engines that
    cannot pass one on; the file is gone at once."""
    name = quote_word(file)
    return [
        f"(umask 077; printf {text} >{name}) || exit 126",
        f"exec {SEALED_DESCRIPTOR}<{name}",
        f"rm -f -- {name}",
    ]


def run_line(command: RuntimeCommand, through: str = "") -> str:
    """Becomes the task, `through` other words of the shell. Each opens the sealed text anew."""
    become_it = exec_line(command.argv, through)
    return "; ".join([*export_lines(command.task_variables), f"{become_it} {SEALED_DESCRIPTOR}<{SEALED_PATH}"])


def exec_line(words: Sequence[str], through: str = "") -> str:
    return " ".join(["exec", *([through] if through else []), *map(quote_word, words)])


def export_lines(environment: Mapping[str, str]) -> list[str]:
    return [f"export {name}={quote_word(value)}" for name, value in environment.items()]


def export_line(environment: Mapping[str, str]) -> str:
    """The same as one command."""
    return " ".join(["export", *(f"{name}={quote_word(value)}" for name, value in environment.items())])


def _filled(text: str) -> str:
    """Of quoted words, in which blanks are within single quotes."""
    return _BLANK.sub(r"""'"$\1"'""", text)
