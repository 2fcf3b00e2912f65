"""`helio exec`, `helio ssh`: a command or a shell inside a running job."""

import contextlib
import os
import selectors
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import JsonFlag, print_json
from heliostat.errors import Invalid

if TYPE_CHECKING:
    from heliostat.client.exec import TerminalInput

_BLOCK = 64 * 1024


def execute(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...")],
    as_json: JsonFlag = False,
) -> None:
    """Run a command inside a running job.

    It must be yours: the command runs as you, on its machine, with its GPUs, limits, folder and environment.
    Its standard input, output and error are passed on, and its exit code is the command's. It ends with the job.
    """
    # Unbuffered: a thread may still read it when we end, and Python aborts where a buffer is locked then.
    stdin = None if sys.stdin is None or sys.stdin.isatty() else open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
    words = command[1:] if command[0] == "--" else command
    entered = connect().jobs.start_exec(job, words, stdin=stdin)
    kept: dict[str, bytes] = {"stdout": b"", "stderr": b""}
    try:
        for stream, data in entered:
            if as_json:
                kept[stream] += data
                continue
            out = sys.stderr.buffer if stream == "stderr" else sys.stdout.buffer
            out.write(data)
            out.flush()
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if as_json:
        texts = {stream: data.decode("utf-8", "replace") for stream, data in kept.items()}
        print_json({"exit_code": entered.exit_code, **texts})
    raise typer.Exit(entered.exit_code)


execute.context_settings = {"allow_interspersed_args": False}  # type: ignore[attr-defined]


def ssh(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    command: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND...]")] = None,
) -> None:
    """Open a shell inside a running job, or run a command there on a terminal.

    The job must be yours: you are on its machine, with its GPUs, limits, folder and environment. The shell ends
    with the job.
    """
    from heliostat.client.exec import TerminalInfo

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Invalid("There is no terminal here.", f"Without one: helio exec {job} -- COMMAND")
    words = command or []
    keyboard, client = sys.stdin.fileno(), connect()
    size = os.get_terminal_size(keyboard)
    here = TerminalInfo(os.environ.get("TERM") or "dumb", size.lines or 24, size.columns or 80)
    with _changes_of_size() as changes, _raw(keyboard):
        entered = client.jobs.start_terminal(job, here, _typed(keyboard, changes), words)
        for _, data in entered:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    raise typer.Exit(entered.exit_code)


ssh.context_settings = {"allow_interspersed_args": False}  # type: ignore[attr-defined]


@contextlib.contextmanager
def _changes_of_size() -> Iterator[int]:
    """A descriptor that can be read from whenever the window has another size."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def changed(*_: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(writing, b"!")

    before = signal.signal(signal.SIGWINCH, changed)
    try:
        yield reading
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.close(writing)  # not the other: the thread that reads it may not have ended


def _typed(keyboard: int, changes: int) -> "Iterator[TerminalInput]":
    with selectors.DefaultSelector() as selector:
        selector.register(keyboard, selectors.EVENT_READ)
        selector.register(changes, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                part = os.read(key.fd, _BLOCK)
                if not part:
                    return
                if key.fd == keyboard:
                    yield part
                    continue
                size = os.get_terminal_size(keyboard)
                yield size.lines, size.columns


@contextlib.contextmanager
def _raw(keyboard: int) -> Iterator[None]:
    """Every key goes to the other side, Ctrl-C too."""
    before = termios.tcgetattr(keyboard)
    tty.setraw(keyboard, termios.TCSADRAIN)  # keeps what was typed already
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
