"""`helio exec`, `helio ssh`: run a command or a shell inside a running job."""

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

    The job must be yours. The command runs as you on the node of the job, with its GPUs, limits, folder and
    environment. Standard input, output and error are connected, and helio exits with the command's exit code. The
    command ends when the job ends.
    """
    # Unbuffered: a thread may still be reading at exit, and Python aborts if a buffer is locked then.
    stdin = None if sys.stdin is None or sys.stdin.isatty() else open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115
    words = command[1:] if command[0] == "--" else command
    process = connect().jobs.start_exec(job, words, stdin=stdin)
    captured: dict[str, bytes] = {"stdout": b"", "stderr": b""}
    try:
        for stream, data in process:
            if as_json:
                captured[stream] += data
                continue
            out = sys.stderr.buffer if stream == "stderr" else sys.stdout.buffer
            out.write(data)
            out.flush()
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if as_json:
        texts = {stream: data.decode("utf-8", "replace") for stream, data in captured.items()}
        print_json({"exit_code": process.exit_code, **texts})
    raise typer.Exit(process.exit_code)


execute.context_settings = {"allow_interspersed_args": False}  # type: ignore[attr-defined]


def ssh(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    command: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND...]")] = None,
) -> None:
    """Open a shell inside a running job.

    With COMMAND, run that command on a terminal instead. The job must be yours. The shell runs on the node of the
    job, with its GPUs, limits, folder and environment, and ends when the job ends.
    """
    from heliostat.client.exec import TerminalInfo

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Invalid("helio ssh needs a terminal.", f"Without a terminal: helio exec {job} -- COMMAND")
    words = command or []
    keyboard, client = sys.stdin.fileno(), connect()
    size = os.get_terminal_size(keyboard)
    terminal = TerminalInfo(os.environ.get("TERM") or "dumb", size.lines or 24, size.columns or 80)
    with _resize_events() as resizes, _raw_mode(keyboard):
        process = client.jobs.start_terminal(job, terminal, _terminal_input(keyboard, resizes), words)
        for _, data in process:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
    raise typer.Exit(process.exit_code)


ssh.context_settings = {"allow_interspersed_args": False}  # type: ignore[attr-defined]


@contextlib.contextmanager
def _resize_events() -> Iterator[int]:
    """A descriptor that becomes readable when the size of the window changes."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def notify(*_: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(writing, b"!")

    before = signal.signal(signal.SIGWINCH, notify)
    try:
        yield reading
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.close(writing)  # not the reading end: the thread that reads it may still be running


def _terminal_input(keyboard: int, resizes: int) -> "Iterator[TerminalInput]":
    with selectors.DefaultSelector() as selector:
        selector.register(keyboard, selectors.EVENT_READ)
        selector.register(resizes, selectors.EVENT_READ)
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
def _raw_mode(keyboard: int) -> Iterator[None]:
    """Sends every key to the job, including Ctrl-C."""
    before = termios.tcgetattr(keyboard)
    tty.setraw(keyboard, termios.TCSADRAIN)  # keeps input that was typed already
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
