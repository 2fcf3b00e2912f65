"""`helio image`: images of one's own, built through the queue."""

from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.app import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import (
    SHORT_DIGEST_LENGTH,
    Column,
    JsonFlag,
    StateCell,
    indent_text,
    print_build_log,
    print_fields,
    print_json,
    print_message,
    print_table,
    sanitize_text,
)
from heliostat.cli.value_format import format_bytes, format_time
from heliostat.errors import Invalid

if TYPE_CHECKING:
    from heliostat.client import Client
    from heliostat.client.images import Image, ImagePush

image = command_group("Images of your own: build, push, use.")
_COLUMNS = (
    Column("IMAGE"),
    Column("STATE"),
    Column("DIGEST"),
    Column("SIZE", right_aligned=True, optional=True),
    Column("USED"),
    Column("BY", optional=True),
)
ImageArgument = Annotated[
    str, typer.Argument(metavar="IMAGE", help="Its name, NAME[:TAG], or the beginning of its digest.")
]


@image.command()
def build(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it: NAME[:TAG].")],
    folder: Annotated[
        str | None, typer.Argument(metavar="[FOLDER]", help="With a Containerfile or Dockerfile; it is uploaded.")
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Another Containerfile, or one of apptainer: X.def."),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            "--env", metavar="FILE", help="Instead: requirements.txt, pyproject.toml, uv.lock or environment.yml."
        ),
    ] = None,
    base: Annotated[str | None, typer.Option(metavar="IMAGE", help="With --env: the image to begin with.")] = None,
    project: Annotated[str | None, typer.Option(help="Whose share the build uses.")] = None,
    background: Annotated[bool, typer.Option("--background", help="Do not wait for its end.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Have an image built, unless it is there already, and show what its build says.

    helio image build torch:2 .

    helio image build torch:2 --env requirements.txt --base python:3.11
    """
    _check_ways(folder, file, env, base)
    from heliostat.cli.uploads import upload_progress_bar

    client = connect()
    with upload_progress_bar() as progress:
        made = client.images.build(
            name, folder, file=file, environment=env, base=base, project=project, progress=progress
        )
    if not background:
        made = _followed(client, made, quiet=as_json)
    if as_json:
        print_json(made)
    else:
        print(_end_words(made))
    if made["state"] == "failed":
        raise typer.Exit(1)


@image.command("list")
def list_images(
    all_users: Annotated[bool, typer.Option("--all", "-a", help="Everybody's; admins only.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List the images you have built, the one used last first."""
    found = connect().images.list(all_users=all_users)
    if as_json:
        print_json(found)
    elif found:
        print_table(_COLUMNS, (_row(one) for one in found))
    else:
        print("No images yet. Make one: helio image build NAME FOLDER")


@image.command()
def show(name: ImageArgument, as_json: JsonFlag = False) -> None:
    """Show one image: what it is built from, and where it was pushed."""
    one = connect().images.get(name)
    if as_json:
        print_json(one)
        return
    print_fields(
        [
            ("Image", ", ".join(one["names"]) or f"{one['built_as']} (the name means a newer one)"),
            ("State", StateCell(one["state"])),
            ("Why", one["reason"]),
            ("Built from", one["digest"]),
            ("Digest", one["image_digest"]),
            ("Size", format_bytes(one["size_bytes"])),
            ("Used", format_time(one["used_at"])),
            ("Built by", f"job {one['build_job']}"),
        ]
    )
    for push in one["pushes"]:
        print(f"Pushed to {sanitize_text(_push_words(push))}")
    for file, text in one["files"].items():
        if file not in ("name", "upload"):
            print(f"\n{sanitize_text(file)}:\n{indent_text(text)}")


@image.command()
def push(
    name: ImageArgument,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="REGISTRY/NAME:TAG.")],
    username: Annotated[
        str | None,
        typer.Option(
            "--username", "-u", metavar="NAME", help="At the registry; else as your account is logged in."
        ),
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password or token from standard input.")
    ] = False,
    background: Annotated[bool, typer.Option("--background", help="Do not wait for its end.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Bring an image to a registry, by a job. The password is used for this push and kept nowhere.

    helio image push torch:2 registry.example.org/lab/torch:2 --username ann
    """
    from heliostat.cli.login import prompt_password

    if password_stdin and username is None:
        raise Invalid("Whose password is it?", "Add --username NAME.")
    password = prompt_password("Password", from_stdin=password_stdin) if username is not None else None
    client = connect()
    pushed = client.images.push(name, target, username=username, password=password)
    if not background:
        print_message(f"Job {pushed['job_id']} pushes it to {pushed['target']}.")
        pushed = _pushed(client, name, pushed)
    if as_json:
        print_json(pushed)
    else:
        print(_push_words(pushed))
    if pushed["state"] in ("failed", "cancelled", "timed_out", "lost"):
        raise typer.Exit(1)


@image.command()
def remove(name: ImageArgument, as_json: JsonFlag = False) -> None:
    """Remove an image here. What was pushed stays where it is."""
    gone = connect().images.remove(name)
    if as_json:
        print_json({"image": name, "gone": gone})
    else:
        print(f"{sanitize_text(name)} is removed.")


def _check_ways(folder: str | None, file: str | None, env: str | None, base: str | None) -> None:
    if env is not None and (folder is not None or file is not None):
        raise Invalid("--env needs no folder and no file.", "Name one way to build it.")
    if (env is None) != (base is None):
        raise Invalid("--env and --base go together.", "Such as: --env requirements.txt --base python:3.11.")
    if folder is None and file is None and env is None:
        raise Invalid("Say what to build it from.", "A folder (.), --file FILE, or --env FILE --base IMAGE.")


def _followed(client: "Client", made: "Image", *, quiet: bool) -> "Image":
    if made["state"] in ("ready", "failed"):
        return made
    print_message(f"Job {made['build_job']} builds {made['built_as']}.")
    print_build_log(client.images.follow(made["digest"]), quiet=quiet)
    return client.images.get(made["digest"])


def _pushed(client: "Client", name: str, pushed: "ImagePush") -> "ImagePush":
    client.wait([pushed["job_id"]])
    known = client.images.get(name)["pushes"]
    return next((one for one in known if one["job_id"] == pushed["job_id"]), pushed)


def _end_words(made: "Image") -> str:
    name = made["built_as"]
    if made["state"] == "ready":
        return f"{name} is ready. Use it: helio run --env image:{name} -- python train.py"
    if made["state"] == "failed":
        return f"{name} has failed: {made['reason'] or ''}"
    return f"{name} is {made['state']}. Watch it: helio image show {name}"


def _push_words(push: "ImagePush") -> str:
    digest = f" as {push['pushed_digest']}" if push["pushed_digest"] else ""
    if push["state"] == "completed":
        return f"{push['target']}{digest}: it is there."
    why = f": {push['reason']}" if push["reason"] else ""
    return f"{push['target']}: {push['state']}{why} (job {push['job_id']})"


def _row(one: "Image") -> list[str | StateCell]:
    used = format_time(one["used_at"]) if one["used_at"] else "-"
    name = ", ".join(one["names"]) or f"({one['built_as']})"
    return [
        name,
        StateCell(one["state"]),
        one["digest"][:SHORT_DIGEST_LENGTH],
        format_bytes(one["size_bytes"]),
        used,
        one["created_by"],
    ]
