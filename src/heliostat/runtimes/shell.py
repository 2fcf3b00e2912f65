"""The lines of shell that run a command, for scripts that engines hand over. All that people typed is quoted."""

from collections.abc import Mapping, Sequence
from shlex import quote

from heliostat.runtimes.contract import SEALED, SEALED_DESCRIPTOR, Command


def prelude(command: Command) -> list[str]:
    """Once, before all tasks. The tool runs with an environment of its own."""
    before = [f"{command.before} || exit 125"] if command.before else []
    return [*exports(command.environment), "cd /", *before]


def seal(command: Command, file: str) -> list[str]:
    """Puts the sealed text onto its descriptor, for engines that cannot pass one on; the file is gone at once."""
    text = "".join(f"\\{byte:03o}" for byte in command.sealed)
    name = quote(file)
    return [
        f"(umask 077; printf {quote(text)} >{name}) || exit 125",
        f"exec {SEALED_DESCRIPTOR}<{name}",
        f"rm -f -- {name}",
    ]


def run(command: Command) -> str:
    """Becomes the task. Each opens the sealed text anew."""
    return "; ".join([*exports(command.task_environment), f"{become(command.argv)} {SEALED_DESCRIPTOR}<{SEALED}"])


def become(words: Sequence[str]) -> str:
    return f"exec {' '.join(quote(word) for word in words)}"


def exports(environment: Mapping[str, str]) -> list[str]:
    return [f"export {name}={quote(value)}" for name, value in environment.items()]
