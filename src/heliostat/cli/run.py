"""`helio run`: one command, or one per index of an array, into the queue."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.after import begin_of, parents_of
from heliostat.cli.connect import connect
from heliostat.cli.ending import exit_code, first_failure, say_end, say_left_running
from heliostat.cli.output import JsonFlag, State, counted, print_json, print_json_line, say, styled
from heliostat.cli.upload import upload_folder

if TYPE_CHECKING:
    from heliostat.client import Client, JobArray, JobHandle


def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="CMD", help="Words, or one quoted shell line.", show_default=False),
    ] = None,
    gpus: Annotated[float | None, typer.Option(help="How many GPUs, or a part of one: 0.5.")] = None,
    gpu_type: Annotated[str | None, typer.Option(help="A100, RTX-3090…; see helio nodes.")] = None,
    gpu_memory: Annotated[str | None, typer.Option(help="The least memory of each GPU: 40G.")] = None,
    cpus: Annotated[int | None, typer.Option(help="How many CPU cores.")] = None,
    memory: Annotated[str | None, typer.Option(help="16G, 512M.")] = None,
    time: Annotated[str | None, typer.Option(help="Time limit: 30m, 4h, 1d12h.")] = None,
    overtime: Annotated[bool, typer.Option("--overtime", help="Run past it while nobody waits.")] = False,
    tasks: Annotated[int | None, typer.Option(help="Parallel members; the rest is of one.")] = None,
    layout: Annotated[str | None, typer.Option(help="Tasks on few nodes: pack; on one each: spread.")] = None,
    exclusive: Annotated[bool, typer.Option("--exclusive", help="Nobody else on its nodes.")] = False,
    label: Annotated[list[str] | None, typer.Option(help="Of its nodes: fast, disk=ssd. May repeat.")] = None,
    reservation: Annotated[str | None, typer.Option(help="Run inside it: helio reservation list.")] = None,
    name: Annotated[str | None, typer.Option(help="A name for the job.")] = None,
    project: Annotated[str | None, typer.Option(help="Whose share it uses.")] = None,
    array: Annotated[str | None, typer.Option(help="0-99: one job per index; 0-99%8: 8 at once.")] = None,
    sweep: Annotated[
        list[str] | None, typer.Option(help="lr=0.1,0.01 or seed=1..5: a run of each. May repeat.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="K=V, K to copy yours; or its software: requirements.txt.")
    ] = None,
    workdir: Annotated[str | None, typer.Option(help="Where it runs; here, on the server's machine.")] = None,
    script: Annotated[str | None, typer.Option(help="A script file to run (- for standard input).")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first; below 0 lets others pass.")] = None,
    priority_class: Annotated[
        str | None, typer.Option("--class", help="scavenger, normal, interactive, urgent.")
    ] = None,
    preemptible: Annotated[
        bool, typer.Option("--preemptible", help="May be stopped and queued again for others.")
    ] = False,
    preempt_signal: Annotated[str | None, typer.Option(help="What tells it to save and go: USR1.")] = None,
    after: Annotated[
        list[str] | None,
        typer.Option("--after", "--after-ok", help="Start when these have completed: 12,13 or array:5."),
    ] = None,
    after_any: Annotated[list[str] | None, typer.Option(help="Start when these are over, however.")] = None,
    after_failed: Annotated[
        list[str] | None, typer.Option(help="Start when these are over and have not completed.")
    ] = None,
    after_each: Annotated[
        list[str] | None, typer.Option(help="Each element of --array after that of this array: array:5.")
    ] = None,
    begin: Annotated[str | None, typer.Option(help="Not before: 2026-12-01T08:00, or +2h.")] = None,
    hold: Annotated[bool, typer.Option("--hold", help="Do not start it before helio release.")] = False,
    max_retries: Annotated[int | None, typer.Option(help="How often to try again, see --retry-on.")] = None,
    retry_on: Annotated[
        list[str] | None, typer.Option(help="lost,preempted (as usual), timed_out, out_of_memory, exit, exit:75.")
    ] = None,
    retry_delay: Annotated[str | None, typer.Option(help="Before the first retry: 30s; then doubles.")] = None,
    notify: Annotated[
        list[str] | None, typer.Option(help="Tell me: started,ended,failed,late,ends_soon; see helio notice.")
    ] = None,
    grace: Annotated[str | None, typer.Option(help="Between TERM and KILL: 10s, 2m.")] = None,
    image: Annotated[str | None, typer.Option(help="Run in this container: python:3.11.")] = None,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="The node's software, but only files it needs.")
    ] = False,
    runtime: Annotated[str | None, typer.Option(help="bubblewrap, podman, apptainer, docker.")] = None,
    mount: Annotated[list[str] | None, typer.Option(help="SRC:DST[:ro] into it. May be repeated.")] = None,
    network: Annotated[str | None, typer.Option(help="Of its container: host, private, none.")] = None,
    upload: Annotated[str | None, typer.Option(help="Send this folder and run in a copy of it.")] = None,
    template: Annotated[
        str | None, typer.Option(help="What starts CMD in its tasks: torchrun, mpi, spark.")
    ] = None,
    no_record: Annotated[bool, typer.Option("--no-record", help="Do not note the state of the code.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end; exit with its code.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print its output; exit with its code.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Put a command into the queue.

    helio run --gpus 1 --memory 16G --time 4h -- python train.py
    """
    if not command and script is None:
        raise typer.BadParameter("Say what to run: helio run [OPTIONS] -- CMD", param_hint="CMD")
    if follow and array is not None:
        raise typer.BadParameter("An array has many outputs: use --wait, then helio logs.", param_hint="--follow")
    if sweep and (array is not None or wait or follow):
        raise typer.BadParameter("A sweep is an array of its own: see helio sweep show.", param_hint="--sweep")
    if isolate and (image is not None or runtime not in (None, "bubblewrap")):
        raise typer.BadParameter("That is --runtime bubblewrap, without an image.", param_hint="--isolate")
    client = connect()
    fields: dict[str, Any] = {
        "command": _command(command or [], script),
        "script": None if script is None else _read_script(script),
        "gpus": int(gpus) if gpus is not None and gpus.is_integer() else gpus,
        "gpu_type": gpu_type,
        "gpu_memory": gpu_memory,
        "cpus": cpus,
        "memory": memory,
        "time": time,
        "overtime": overtime or None,
        "tasks": tasks,
        "layout": layout,
        "exclusive": exclusive or None,
        "labels": label or None,
        "reservation": reservation,
        "name": name,
        "project": project,
        "array": array,
        "env": environment_of([one for one in env or [] if not is_software(one)]),
        "environment": software_of([one for one in env or [] if is_software(one)]),
        "workdir": None if workdir is None else os.path.abspath(os.path.expanduser(workdir)),
        "priority": priority,
        "priority_class": priority_class,
        "preemptible": preemptible or None,
        "preempt_signal": preempt_signal,
        "after": parents_of(after),
        "after_any": parents_of(after_any),
        "after_failed": parents_of(after_failed),
        "after_each": parents_of(after_each),
        "begin": None if begin is None else begin_of(begin),
        "held": hold or None,
        "max_retries": max_retries,
        "retry_on": _words(retry_on),
        "retry_delay": retry_delay,
        "notify": _words(notify),
        "grace_seconds": None if grace is None else seconds_of(grace, "--grace"),
        "image": image,
        "runtime": "bubblewrap" if isolate else runtime,
        "mounts": [_absolute(text) for text in mount] if mount else None,
        "network": network,
        "upload": None if upload is None else upload_folder(client, upload),
        "template": template,
    }
    if no_record:
        fields["record"] = False
    if sweep:
        _finish_sweep(client, fields, sweep, as_json)
    elif array is not None:
        _finish_array(client.submit(**fields), wait, as_json)
    else:
        finish(client, client.submit(**fields), wait, follow, as_json)


# What follows the first word of CMD belongs to CMD, with or without `--`.
run.context_settings = {"allow_interspersed_args": False}  # type: ignore[attr-defined]


def seconds_of(text: str, option: str) -> float:
    from heliostat.models.quantities import parse_duration

    try:
        return float(parse_duration(text))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def finish(client: "Client", job: "JobHandle", wait: bool, follow: bool, as_json: bool) -> None:
    """Says what was submitted and, when asked to, stays until its end."""
    if not (wait or follow):
        if as_json:
            print_json(job.data)
        else:
            print(f"Job {job.id} {styled(State(job.data['state']))}. Watch it: helio logs -f {job.id}")
        return
    say(f"Job {job.id} {styled(State(job.data['state']), sys.stderr)}")
    try:
        if follow:
            _print_followed(client, job, as_json)
        job.wait()
    except KeyboardInterrupt:
        say_left_running([job.id])
        raise typer.Exit(130) from None
    if as_json:
        (print_json_line if follow else print_json)(job.data)
    say_end(job.data)
    raise typer.Exit(exit_code(job.data))


def _finish_sweep(client: "Client", fields: dict[str, Any], sweep: list[str], as_json: bool) -> None:
    from heliostat.cli.sweep import grid_of, said

    job = {name: value for name, value in fields.items() if value is not None and name not in ("record", "name")}
    made = client.sweeps.submit(
        job, record=fields.get("record", True), name=fields["name"] or "sweep", grid=grid_of(sweep)
    )
    said(made, as_json)


def _finish_array(array: "JobArray", wait: bool, as_json: bool) -> None:
    submitted = {"array_id": array.id, "count": len(array), "job_ids": [job.id for job in array]}
    if not as_json:
        say_or_print = say if wait else print
        say_or_print(
            f"Array {array.id} of {counted(len(array), 'job')} submitted. Watch it: helio ps --array {array.id}"
        )
    elif not wait:
        print_json(submitted)
    if not wait:
        return
    try:
        array.wait()
    except KeyboardInterrupt:
        say(f"\nNo longer waiting; the jobs go on. Stop them: helio cancel --array {array.id}")
        raise typer.Exit(130) from None
    if as_json:
        print_json({**submitted, "jobs": [job.data for job in array]})
    failed = [job.data for job in array if not job.ok]
    say(f"{len(array) - len(failed)} of {counted(len(array), 'job')} completed.")
    raise typer.Exit(first_failure(failed))


def _print_followed(client: "Client", job: "JobHandle", as_json: bool) -> None:
    from heliostat.cli.logs import print_chunks

    print_chunks(client.logs.follow(job), as_json)


def _command(words: list[str], script: str | None) -> str | list[str] | None:
    """One word with blanks in it is a shell line, as with ssh; with a script, words are its arguments."""
    if script is None and len(words) == 1 and any(char.isspace() for char in words[0]):
        return words[0]
    return words or None


def _read_script(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{name} is not a text file.", param_hint="--script") from error
    except OSError as error:
        raise typer.BadParameter(f"{name} cannot be read: {error.strerror}.", param_hint="--script") from error


def _absolute(mount: str) -> str:
    """`data:/data` means the folder here; without a place inside it is the same there."""
    source, _, rest = mount.partition(":")
    source = os.path.abspath(os.path.expanduser(source))
    return f"{source}:{rest}" if rest.startswith("/") else f"{source}:{source}:{rest}".rstrip(":")


def _words(given: list[str] | None) -> list[str] | None:
    return [word.strip() for text in given or [] for word in text.split(",") if word.strip()] or None


def is_software(text: str) -> bool:
    """No variable has a name like `requirements.txt`, `image:python`, `@3fa9c1b2`."""
    return "=" not in text and any(sign in text for sign in ".:@/")


def software_of(given: list[str]) -> str | None:
    if len(given) > 1:
        raise typer.BadParameter("A job runs in one environment.", param_hint="--env")
    return given[0] if given else None


def environment_of(given: list[str]) -> dict[str, str] | None:
    env: dict[str, str] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals and name not in os.environ:
            raise typer.BadParameter(f"{name} is not set here; write {name}=VALUE.", param_hint="--env")
        env[name] = value if equals else os.environ[name]
    return env or None
