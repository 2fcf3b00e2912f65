"""`helio exec`: a command inside a running job."""

import sys
from typing import Annotated

import typer

from heliostat.cli.connect import connect
from heliostat.cli.output import JsonFlag, print_json


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
