"""`helio service`: web servers that stay up, behind one address."""

import time as clock
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.app import command_group
from heliostat.cli.connection import connect
from heliostat.cli.job_options import job_options
from heliostat.cli.output import Column, JsonFlag, print_fields, print_json, print_message, print_table

if TYPE_CHECKING:
    from heliostat.client import Client

service = command_group("Web servers that stay up, as several replicas behind one address.")
ServiceArgument = Annotated[str, typer.Argument(metavar="SERVICE", help="Its name.")]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - for standard input.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until all its replicas are healthy.")]
ReplicasOption = Annotated[int | None, typer.Option(help="How many.", min=0)]
VisibilityOption = Annotated[str | None, typer.Option(help="Who may use it: private, project, public.")]
_LOOK_SECONDS = 0.5
_COLUMNS = (
    Column("NAME"),
    Column("USER", optional=True),
    Column("STATE"),
    Column("HEALTHY", right_aligned=True),
    Column("SEEN BY", optional=True),
    Column("ADDRESS", shrinkable=True),
)
_REPLICAS = (
    Column("JOB", right_aligned=True),
    Column("STATE"),
    Column("NODE"),
    Column("GENERATION", right_aligned=True, optional=True),
    Column("OPEN", right_aligned=True),
    Column("PROBLEM", shrinkable=True),
)


@service.command()
def submit(file: FileArgument, wait: WaitOption = False, as_json: JsonFlag = False) -> None:
    """Start the service of a YAML or JSON file.

    The file holds name, replicas, visibility, health (path, interval, timeout, threshold, grace), surge, drain,
    and the fields of a job. Its command finds its port in $PORT; {port} in a word stands for it.
    """
    client = connect()
    _started(client, client.services.create(**_fields(client, file)), wait, as_json)


@service.command(context_settings={"allow_interspersed_args": False})
@job_options("service")
def run(
    command: Annotated[list[str], typer.Argument(metavar="[--] CMD...", show_default=False)],
    name: Annotated[str, typer.Option(help="Its name, which is its address.")],
    *,
    job: dict[str, Any],
    replicas: ReplicasOption = None,
    visibility: VisibilityOption = None,
    health: Annotated[str | None, typer.Option(metavar="PATH", help="That answers when it is healthy.")] = None,
    wait: WaitOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Start a service by its command, which finds its port in $PORT.

    helio service run --name docs --replicas 3 -- python3 -m http.server {port}
    """
    client = connect()
    own = {"replicas": replicas, "visibility": visibility, "health": None if health is None else {"path": health}}
    fields = {"workdir": client.address.default_workdir(), **own, **job}
    _started(client, client.services.create(name, command, **fields), wait, as_json)


@service.command("list")
def list_services(as_json: JsonFlag = False) -> None:
    """List the services you may use, by name."""
    found = connect().services.list()
    if as_json:
        print_json(found)
    elif not found:
        print("No services. Start one: helio service run --name docs -- python3 -m http.server {port}")
    else:
        rows = [
            [
                one["name"],
                one["user"],
                _state(one),
                f"{one['healthy']}/{one['replicas']}",
                one["visibility"],
                one["url"],
            ]
            for one in found
        ]
        print_table(_COLUMNS, rows)


@service.command()
def show(name: ServiceArgument, as_json: JsonFlag = False) -> None:
    """Show a service: its replicas, their health and the last problems."""
    one = connect().services.get(name)
    if as_json:
        print_json(one)
        return
    facts = [("service", one["name"]), ("owner", f"{one['user']}, project {one['project']}"), ("is", one["words"])]
    facts += [("address", one["url"]), ("seen by", one["visibility"])]
    if one["problem"]:
        facts.append(("last problem", one["problem"]))
    print_fields(facts)
    if replicas := one.get("replica_jobs"):
        print()
        print_table(_REPLICAS, (_replica_row(each) for each in replicas))


@service.command()
def scale(
    name: ServiceArgument,
    replicas: Annotated[int | None, typer.Argument(metavar="[REPLICAS]", help="How many.", min=0)] = None,
    visibility: VisibilityOption = None,
    wait: WaitOption = False,
    as_json: JsonFlag = False,
) -> None:
    """More or fewer replicas, or seen by others.

    helio service scale docs 5
    """
    if replicas is None and visibility is None:
        raise typer.BadParameter("Say how many: helio service scale NAME 3.", param_hint="REPLICAS")
    client = connect()
    _started(client, client.services.scale(name, replicas, visibility=visibility), wait, as_json)


@service.command()
def update(file: FileArgument, wait: WaitOption = False, as_json: JsonFlag = False) -> None:
    """Update a service from its file; replicas are replaced one by one, and none before another is healthy."""
    client = connect()
    _started(client, client.services.update(**_fields(client, file)), wait, as_json)


@service.command()
def restart(name: ServiceArgument, wait: WaitOption = False, as_json: JsonFlag = False) -> None:
    """Replace every replica, one by one; also start a service that is stopped."""
    client = connect()
    _started(client, client.services.restart(name), wait, as_json)


@service.command()
def stop(name: ServiceArgument, as_json: JsonFlag = False) -> None:
    """Let open requests be answered, then end all replicas."""
    one = connect().services.stop(name)
    if as_json:
        print_json(one)
    else:
        print(f"Service {name}: {one['words']}")


@service.command()
def remove(name: ServiceArgument, as_json: JsonFlag = False) -> None:
    """Forget a service that is stopped; its name is free again."""
    connect().services.remove(name)
    if as_json:
        print_json({"removed": name})
    else:
        print(f"Service {name} is removed.")


@service.command()
def key(name: ServiceArgument, as_json: JsonFlag = False) -> None:
    """Make a secret with which a program uses a service, for some hours.

    curl -H "Authorization: Bearer $(helio service key docs)" ADDRESS
    """
    made = connect().services.create_key(name)
    if as_json:
        print_json(made)
    else:
        print(made["key"])


@service.command()
def logs(
    name: ServiceArgument,
    replica: Annotated[int | None, typer.Option(metavar="JOB", help="Of this replica; else the newest.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it is over.")] = False,
    tail: Annotated[int | None, typer.Option(help="Only the last lines of each stream.", min=0)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print what a replica has printed."""
    from heliostat.cli.logs import logs as print_logs

    jobs = [one["job_id"] for one in connect().services.get(name).get("replica_jobs", [])]
    if not jobs:
        print_message(f"There is no replica of {name} whose log is yours to see.")
        raise typer.Exit(1)
    if replica is not None and replica not in jobs:
        raise typer.BadParameter(
            f"Replicas of {name} are jobs {', '.join(map(str, jobs))}.", param_hint="--replica"
        )
    print_logs(replica or max(jobs), follow=follow, tail=tail, as_json=as_json)


def _fields(client: "Client", file: str) -> dict[str, Any]:
    from heliostat.cli.submit import normalize_job_fields, read_job_file

    found = read_job_file(file)
    if len(found) != 1 or "name" not in found[0]:
        raise typer.BadParameter("The file holds one service, with its name.", param_hint="FILE")
    return normalize_job_fields(found[0], client.address.default_workdir())


def _started(client: "Client", one: Any, wait: bool, as_json: bool) -> None:
    if wait:
        one = _wait_until_healthy(client, one["name"], quiet=as_json)
    if as_json:
        print_json(one)
        return
    print(f"Service {one['name']}: {one['words']}")
    print(one["url"])


def _wait_until_healthy(client: "Client", name: str, *, quiet: bool) -> Any:
    """Says what it waits for, as that changes."""
    said = ""
    while True:
        one = client.services.get(name)
        if one["healthy"] >= one["replicas"] and one["is_updated"]:
            return one
        if one["words"] != said and not quiet:
            said = one["words"]
            print_message(f"… {said}{' ' + one['problem'] if one['problem'] else ''}")
        clock.sleep(_LOOK_SECONDS)


def _state(one: Any) -> str:
    if one["state"] == "stopped":
        return "stopped"
    return "up" if one["healthy"] >= one["replicas"] else "degraded" if one["healthy"] else "down"


def _replica_row(one: Any) -> list[str]:
    node, problem = one["node"] or "-", one["problem"] or ""
    return [str(one["job_id"]), one["state"], node, str(one["generation"]), str(one["open_requests"]), problem]
