"""`helio service`: long-running web services with replicas behind one address."""

import time as clock
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.job_options import job_options
from heliostat.cli.output import Column, JsonFlag, print_fields, print_json, print_message, print_table

if TYPE_CHECKING:
    from heliostat.client import Client

service = command_group("Long-running web services with replicas behind one address.")
ServiceArgument = Annotated[str, typer.Argument(metavar="SERVICE", help="Name of the service.")]
FileArgument = Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - for standard input.")]
WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until all replicas are healthy.")]
ReplicasOption = Annotated[int | None, typer.Option(help="Number of replicas.", min=0)]
VisibilityOption = Annotated[
    str | None,
    typer.Option(help="Who may use it: private (you), project (its members) or public (all users)."),
]
_POLL_SECONDS = 0.5
_COLUMNS = (
    Column("NAME"),
    Column("USER", optional=True),
    Column("STATE"),
    Column("HEALTHY", right_aligned=True),
    Column("VISIBILITY", optional=True),
    Column("ADDRESS", shrinkable=True),
)
_REPLICAS = (
    Column("JOB", right_aligned=True),
    Column("STATE"),
    Column("NODE"),
    Column("GENERATION", right_aligned=True, optional=True),
    Column("REQUESTS", right_aligned=True),
    Column("PROBLEM", shrinkable=True),
)


@service.command()
def submit(file: FileArgument, wait: WaitOption = False, as_json: JsonFlag = False) -> None:
    """Start a service from a YAML or JSON file.

    Fields of the file: name, replicas, visibility, health (path, interval, timeout, threshold, grace), surge,
    drain, and the fields of a job. The command must listen on the port in $PORT; {port} in an argument is
    replaced by it.
    """
    client = connect()
    _report(client, client.services.create(**_fields(client, file)), wait, as_json)


@service.command(context_settings={"allow_interspersed_args": False})
@job_options("service")
def run(
    command: Annotated[list[str], typer.Argument(metavar="[--] CMD...", show_default=False)],
    name: Annotated[str, typer.Option(help="Name of the service; part of its address.")],
    *,
    job: dict[str, Any],
    replicas: ReplicasOption = None,
    visibility: VisibilityOption = None,
    health: Annotated[
        str | None, typer.Option(metavar="PATH", help="HTTP path of the health check: /healthz.")
    ] = None,
    wait: WaitOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Start a service from a command, which must listen on the port in $PORT.

    helio service run --name docs --replicas 3 -- python3 -m http.server {port}
    """
    client = connect()
    service_fields = {
        "replicas": replicas,
        "visibility": visibility,
        "health": None if health is None else {"path": health},
    }
    fields = {"workdir": client.address.default_workdir(), **service_fields, **job}
    _report(client, client.services.create(name, command, **fields), wait, as_json)


@service.command("list")
def list_services(as_json: JsonFlag = False) -> None:
    """List the services that you may use."""
    items = connect().services.list()
    if as_json:
        print_json(items)
    elif not items:
        print("No services. Start one: helio service run --name docs -- python3 -m http.server {port}")
    else:
        rows = [
            [
                data["name"],
                data["user"],
                _state(data),
                f"{data['healthy']}/{data['replicas']}",
                data["visibility"],
                data["url"],
            ]
            for data in items
        ]
        print_table(_COLUMNS, rows)


@service.command()
def show(name: ServiceArgument, as_json: JsonFlag = False) -> None:
    """Show a service: its replicas, their health and the last problems."""
    data = connect().services.get(name)
    if as_json:
        print_json(data)
        return
    facts = [("service", data["name"]), ("owner", f"{data['user']}, project {data['project']}")]
    facts += [("status", data["summary"]), ("address", data["url"]), ("visibility", data["visibility"])]
    if data["problem"]:
        facts.append(("last problem", data["problem"]))
    print_fields(facts)
    if replicas := data.get("replica_jobs"):
        print()
        print_table(_REPLICAS, (_replica_row(replica) for replica in replicas))


@service.command()
def scale(
    name: ServiceArgument,
    replicas: Annotated[
        int | None, typer.Argument(metavar="[REPLICAS]", help="Number of replicas.", min=0)
    ] = None,
    visibility: VisibilityOption = None,
    wait: WaitOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Change the number of replicas or the visibility of a service.

    helio service scale docs 5
    """
    if replicas is None and visibility is None:
        raise typer.BadParameter("Give the number of replicas: helio service scale NAME 3.", param_hint="REPLICAS")
    client = connect()
    _report(client, client.services.scale(name, replicas, visibility=visibility), wait, as_json)


@service.command()
def update(file: FileArgument, wait: WaitOption = False, as_json: JsonFlag = False) -> None:
    """Update a service from its file. Replicas are replaced one by one, each after its successor is healthy."""
    client = connect()
    _report(client, client.services.update(**_fields(client, file)), wait, as_json)


@service.command()
def restart(name: ServiceArgument, wait: WaitOption = False, as_json: JsonFlag = False) -> None:
    """Replace all replicas one by one, or start a stopped service."""
    client = connect()
    _report(client, client.services.restart(name), wait, as_json)


@service.command()
def stop(name: ServiceArgument, as_json: JsonFlag = False) -> None:
    """Stop a service: finish open requests, then end all replicas."""
    data = connect().services.stop(name)
    if as_json:
        print_json(data)
    else:
        print(f"Service {name}: {data['summary']}")


@service.command()
def remove(name: ServiceArgument, as_json: JsonFlag = False) -> None:
    """Remove a stopped service; its name can be used again."""
    connect().services.remove(name)
    if as_json:
        print_json({"removed": name})
    else:
        print(f"Service {name} is removed.")


@service.command()
def key(name: ServiceArgument, as_json: JsonFlag = False) -> None:
    """Create a key with which a program can use a service for a few hours.

    curl -H "Authorization: Bearer $(helio service key docs)" ADDRESS
    """
    created = connect().services.create_key(name)
    if as_json:
        print_json(created)
    else:
        print(created["key"])


@service.command()
def logs(
    name: ServiceArgument,
    replica: Annotated[
        int | None, typer.Option(metavar="JOB", help="Job id of the replica. Default: the newest.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print new output until the replica ends.")
    ] = False,
    tail: Annotated[int | None, typer.Option(help="Only the last N lines of each stream.", min=0)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the output of a replica."""
    from heliostat.cli.logs import logs as print_logs

    jobs = [data["job_id"] for data in connect().services.get(name).get("replica_jobs", [])]
    if not jobs:
        print_message(f"Service {name} has no replicas, or you may not read their logs.")
        raise typer.Exit(1)
    if replica is not None and replica not in jobs:
        raise typer.BadParameter(
            f"The replicas of {name} are jobs {', '.join(map(str, jobs))}.", param_hint="--replica"
        )
    print_logs([str(replica or max(jobs))], follow=follow, tail=tail, as_json=as_json)


def _fields(client: "Client", file: str) -> dict[str, Any]:
    from heliostat.cli.submit import normalize_job_fields, read_job_file

    items = read_job_file(file)
    if len(items) != 1 or "name" not in items[0]:
        raise typer.BadParameter("The file must contain one service with a name.", param_hint="FILE")
    return normalize_job_fields(items[0], client.address.default_workdir())


def _report(client: "Client", data: Any, wait: bool, as_json: bool) -> None:
    if wait:
        data = _wait_until_healthy(client, data["name"], quiet=as_json)
    if as_json:
        print_json(data)
        return
    print(f"Service {data['name']}: {data['summary']}")
    print(data["url"])


def _wait_until_healthy(client: "Client", name: str, *, quiet: bool) -> Any:
    """Prints the state whenever it changes."""
    printed = ""
    while True:
        data = client.services.get(name)
        if data["healthy"] >= data["replicas"] and data["is_updated"]:
            return data
        if data["summary"] != printed and not quiet:
            printed = data["summary"]
            print_message(f"… {printed}{' ' + data['problem'] if data['problem'] else ''}")
        clock.sleep(_POLL_SECONDS)


def _state(data: Any) -> str:
    if data["state"] == "stopped":
        return "stopped"
    return "up" if data["healthy"] >= data["replicas"] else "degraded" if data["healthy"] else "down"


def _replica_row(data: Any) -> list[str]:
    node, problem = data["node"] or "-", data["problem"] or ""
    return [str(data["job_id"]), data["state"], node, str(data["generation"]), str(data["open_requests"]), problem]
