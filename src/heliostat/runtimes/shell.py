"""The lines of shell that run a command, for scripts that engines hand over. All that people typed is quoted.

What is known only where a script runs is left blank in words, paths and values: `blank("folder")` becomes what the
variable `folder` of the script holds there, whatever that is, as a part of the same word.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from shlex import quote

from heliostat.runtimes.contract import HELD_DESCRIPTOR, SEALED, SEALED_DESCRIPTOR, Command

_BLANK = re.compile(r"\0(\w+)\0", re.ASCII)  # nothing a person can pass on holds a NUL


def blank(variable: str) -> str:
    return f"\0{variable}\0"


def has_blank(text: str) -> bool:
    return "\0" in text


def quoted(word: str) -> str:
    return _filled(quote(word)) if has_blank(word) else quote(word)


def prelude(command: Command) -> list[str]:
    """Once, before all tasks. The tool runs with an environment of its own."""
    before = [f"{_filled(command.before)} || exit 125"] if command.before else []
    return [*exports(command.environment), "cd /", *before]


def hold(command: Command, code: int) -> list[str]:
    """Before the prelude, in the shell that becomes the tool or outlives it. Leaves with this code if it cannot.

    That it was opened for writing says when it was last used.
    """
    if not command.holds:
        return []
    name, folder = quoted(command.holds), quoted(posixpath.dirname(command.holds))
    made = f"{{ [ -d {folder} ] || mkdir -m 700 -p {folder}; }} && : >{name}"
    return [
        f"{{ {made}; }} || exit {code}",
        f"exec {HELD_DESCRIPTOR}<{name} && flock -s {HELD_DESCRIPTOR} || exit {code}",
    ]


def octal(content: bytes) -> str:
    """As `printf` of the shell writes it again."""
    return "".join(f"\\{byte:03o}" for byte in content)


def seal(text: str, file: str) -> list[str]:
    """Puts the sealed text, a word of the shell that holds it for `printf`, onto its descriptor, for engines that
    cannot pass one on; the file is gone at once."""
    name = quoted(file)
    return [
        f"(umask 077; printf {text} >{name}) || exit 126",
        f"exec {SEALED_DESCRIPTOR}<{name}",
        f"rm -f -- {name}",
    ]


def run(command: Command, through: str = "") -> str:
    """Becomes the task, `through` other words of the shell. Each opens the sealed text anew."""
    become_it = become(command.argv, through)
    return "; ".join([*exports(command.task_environment), f"{become_it} {SEALED_DESCRIPTOR}<{SEALED}"])


def become(words: Sequence[str], through: str = "") -> str:
    return " ".join(["exec", *([through] if through else []), *map(quoted, words)])


def exports(environment: Mapping[str, str]) -> list[str]:
    return [f"export {name}={quoted(value)}" for name, value in environment.items()]


def export_all(environment: Mapping[str, str]) -> str:
    """The same as one command."""
    return " ".join(["export", *(f"{name}={quoted(value)}" for name, value in environment.items())])


def _filled(text: str) -> str:
    """Of quoted words, in which blanks are within single quotes."""
    return _BLANK.sub(r"""'"$\1"'""", text)
