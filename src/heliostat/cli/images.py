"""`helio image`: build, list, push and remove your container images."""

from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.command_tree import command_group
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

image = command_group("Your container images: build, push, use.")
_COLUMNS = (
    Column("IMAGE"),
    Column("STATE"),
    Column("DIGEST"),
    Column("SIZE", right_aligned=True, optional=True),
    Column("LAST USED"),
    Column("OWNER", optional=True),
)
ImageArgument = Annotated[
    str, typer.Argument(metavar="IMAGE", help="NAME[:TAG] of the image, or the beginning of its digest.")
]


@image.command()
def build(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new image: NAME[:TAG].")],
    folder: Annotated[
        str | None,
        typer.Argument(
            metavar="[FOLDER]", help="Build context with a Containerfile or Dockerfile. It is uploaded."
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="FILE", help="Another Containerfile, or an apptainer file: X.def."),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            "--env",
            metavar="FILE",
            help="Build from requirements.txt, pyproject.toml, uv.lock or environment.yml instead of a folder.",
        ),
    ] = None,
    base: Annotated[str | None, typer.Option(metavar="IMAGE", help="Base image for --env.")] = None,
    project: Annotated[str | None, typer.Option(help="Project that the build job is charged to.")] = None,
    background: Annotated[bool, typer.Option("--background", help="Do not wait for the build to end.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Build an image, unless it exists, and print the build log.

    helio image build torch:2 .

    helio image build torch:2 --env requirements.txt --base python:3.11
    """
    _check_sources(folder, file, env, base)
    from heliostat.cli.uploads import upload_progress_bar

    client = connect()
    with upload_progress_bar() as progress:
        built = client.images.build(
            name, folder, file=file, environment=env, base=base, project=project, progress=progress
        )
    if not background:
        built = _follow_build(client, built, quiet=as_json)
    if as_json:
        print_json(built)
    else:
        print(_result_message(built))
    if built["state"] == "failed":
        raise typer.Exit(1)


@image.command("list")
def list_images(
    all_users: Annotated[bool, typer.Option("--all", "-a", help="Images of all users; admins only.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List your images, most recently used first."""
    images = connect().images.list(all_users=all_users)
    if as_json:
        print_json(images)
    elif images:
        print_table(_COLUMNS, (_row(image_data) for image_data in images))
    else:
        print("No images yet. Build one: helio image build NAME FOLDER")


@image.command()
def show(name: ImageArgument, as_json: JsonFlag = False) -> None:
    """Show an image: its source, its state and where it was pushed."""
    image_data = connect().images.get(name)
    if as_json:
        print_json(image_data)
        return
    print_fields(
        [
            (
                "Image",
                ", ".join(image_data["names"]) or f"{image_data['built_as']} (a newer image has this name now)",
            ),
            ("State", StateCell(image_data["state"])),
            ("Reason", image_data["reason"]),
            ("Source digest", image_data["digest"]),
            ("Image digest", image_data["image_digest"]),
            ("Size", format_bytes(image_data["size_bytes"])),
            ("Last used", format_time(image_data["used_at"])),
            ("Build job", str(image_data["build_job"])),
        ]
    )
    for push in image_data["pushes"]:
        print(f"Push to {sanitize_text(_push_message(push))}")
    for file, text in image_data["files"].items():
        if file not in ("name", "upload"):
            print(f"\n{sanitize_text(file)}:\n{indent_text(text)}")


@image.command()
def push(
    name: ImageArgument,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="REGISTRY/NAME:TAG.")],
    username: Annotated[
        str | None,
        typer.Option(
            "--username",
            "-u",
            metavar="NAME",
            help="User at the registry. Default: the registry login of your Unix account.",
        ),
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password or token from standard input.")
    ] = False,
    background: Annotated[bool, typer.Option("--background", help="Do not wait for the push to end.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Push an image to a registry. The password is used only for this push and is not stored.

    helio image push torch:2 registry.example.org/lab/torch:2 --username ann
    """
    from heliostat.cli.password_prompt import prompt_password

    if password_stdin and username is None:
        raise Invalid("--password-stdin needs --username.", "Add --username NAME.")
    password = prompt_password("Password", from_stdin=password_stdin) if username is not None else None
    client = connect()
    pushed = client.images.push(name, target, username=username, password=password)
    if not background:
        print_message(f"Job {pushed['job_id']} pushes the image to {pushed['target']}.")
        pushed = _wait_for_push(client, name, pushed)
    if as_json:
        print_json(pushed)
    else:
        print(_push_message(pushed))
    if pushed["state"] in ("failed", "cancelled", "timed_out", "lost"):
        raise typer.Exit(1)


@image.command()
def remove(name: ImageArgument, as_json: JsonFlag = False) -> None:
    """Remove an image from the cluster. Pushed copies stay in their registries."""
    gone = connect().images.remove(name)
    if as_json:
        print_json({"image": name, "gone": gone})
    else:
        print(f"{sanitize_text(name)} is removed.")


def _check_sources(folder: str | None, file: str | None, env: str | None, base: str | None) -> None:
    if env is not None and (folder is not None or file is not None):
        raise Invalid("--env cannot be combined with a folder or --file.", "Use one source.")
    if (env is None) != (base is None):
        raise Invalid("--env and --base need each other.", "Example: --env requirements.txt --base python:3.11.")
    if folder is None and file is None and env is None:
        raise Invalid(
            "The source of the image is missing.", "Name a folder (.), --file FILE, or --env FILE --base IMAGE."
        )


def _follow_build(client: "Client", built: "Image", *, quiet: bool) -> "Image":
    if built["state"] in ("ready", "failed"):
        return built
    print_message(f"Job {built['build_job']} builds {built['built_as']}.")
    print_build_log(client.images.follow(built["digest"]), quiet=quiet)
    return client.images.get(built["digest"])


def _wait_for_push(client: "Client", name: str, pushed: "ImagePush") -> "ImagePush":
    client.wait([pushed["job_id"]])
    pushes = client.images.get(name)["pushes"]
    return next((push for push in pushes if push["job_id"] == pushed["job_id"]), pushed)


def _result_message(built: "Image") -> str:
    name = built["built_as"]
    if built["state"] == "ready":
        return f"{name} is ready. Use it: helio run --env image:{name} -- python train.py"
    if built["state"] == "failed":
        return f"The build of {name} failed: {built['reason'] or 'see its log'}"
    return f"{name} is {built['state']}. Watch it: helio image show {name}"


def _push_message(push: "ImagePush") -> str:
    digest = f" as {push['pushed_digest']}" if push["pushed_digest"] else ""
    if push["state"] == "completed":
        return f"{push['target']}{digest}: completed."
    reason = f": {push['reason']}" if push["reason"] else ""
    return f"{push['target']}: {push['state']}{reason} (job {push['job_id']})"


def _row(image_data: "Image") -> list[str | StateCell]:
    used = format_time(image_data["used_at"]) if image_data["used_at"] else "-"
    name = ", ".join(image_data["names"]) or f"({image_data['built_as']})"
    return [
        name,
        StateCell(image_data["state"]),
        image_data["digest"][:SHORT_DIGEST_LENGTH],
        format_bytes(image_data["size_bytes"]),
        used,
        image_data["created_by"],
    ]
