"""Arguments that select jobs, the same for all commands that take several jobs."""

from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.errors import Invalid

if TYPE_CHECKING:
    from heliostat.client import Client

JobsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[JOB]...", help="Job ids, array:5 or sweep:3.", show_default=False)
]
MineOption = Annotated[bool, typer.Option("--mine", "-m", help="All your jobs that have not ended.")]
NameOption = Annotated[
    str | None, typer.Option("--name", help="Your jobs that have not ended and whose name contains this text.")
]


def select_jobs(
    client: "Client",
    jobs: list[str] | None,
    mine: bool,
    name: str | None,
    *,
    user: str | None = None,
    state: str | None = None,
    unfinished: bool | None = None,
) -> list[int]:
    """The ids of the selected jobs. `state` and `unfinished` do not apply to jobs that are given by their id."""
    if not jobs and not mine and name is None and user is None:
        raise Invalid("Name the jobs.", "Give job ids, array:5, sweep:3, --mine or --name TEXT.")
    selected = client.jobs.select(
        *(jobs or ()), mine=mine, name=name, user=user, state=state, unfinished=unfinished
    )
    return [job.id for job in selected]


def names_only_ids(jobs: list[str] | None, mine: bool, name: str | None) -> bool:
    return not mine and name is None and all(word.isdecimal() for word in jobs or ())
