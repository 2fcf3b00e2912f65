"""`helio monitoring`: sets up Prometheus, Alertmanager, node_exporter and Grafana on the machine of the server."""

import socket
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.doctor import print_finding
from heliostat.cli.output import JsonFlag, print_json, print_message
from heliostat.errors import Conflict, Forbidden

if TYPE_CHECKING:
    from heliostat.client import Client
    from heliostat.provision.monitoring.setup import SetupPlan
    from heliostat.provision.monitoring.site import MonitoringSite

monitoring = command_group("Set up Prometheus, Alertmanager and Grafana.")

PrefixOption = Annotated[
    str, typer.Option("--prefix", help="Put all files below this folder and use no systemd, for a trial.")
]
_TOKEN_DAYS = 366
_RENEW_BEFORE = timedelta(days=60)
_SCRAPE_SECONDS = 60.0


@monitoring.command()
def setup(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    prefix: PrefixOption = "",
    as_json: JsonFlag = False,
) -> None:
    """Install and configure the monitoring on this machine. Needs root and the running server.

    Shows packages, files and ports, then asks. May be repeated. Never overwrites a configuration of others.
    """
    from heliostat.provision.monitoring.check import wait_until_scraped
    from heliostat.provision.monitoring.setup import apply_setup, plan_setup

    client = connect()
    site = _site(client, prefix)
    planned = plan_setup(site)
    if dry_run and as_json:
        print_json(asdict(planned))
        return
    if not as_json:
        _show(planned)
    if dry_run or not (yes or as_json or typer.confirm("Continue?")):
        return
    done = []
    for sentence in apply_setup(site, lambda scope: _new_token(client, scope)):
        done.append(sentence)
        if not as_json:
            print(sentence, flush=True)
    findings = [asdict(finding) for finding in wait_until_scraped(site, _SCRAPE_SECONDS)]
    if as_json:
        print_json({"done": done, "findings": findings})
        return
    print("The monitoring is set up." if done else "The monitoring is set up; nothing had to be changed.")
    for finding in findings:
        print_finding(finding)


@monitoring.command()
def check(prefix: PrefixOption = "", as_json: JsonFlag = False) -> None:
    """Check that Prometheus reaches Heliostat, the exporters and Alertmanager, and that admins get alerts.

    Exits with 1 if there is a problem.
    """
    from heliostat.provision.monitoring.check import check_monitoring

    client = connect()
    findings = [asdict(finding) for finding in check_monitoring(_site(client, prefix))]
    findings += [*_check_receivers(client), *_check_tokens(client)]
    if as_json:
        print_json({"findings": findings})
    else:
        for finding in findings:
            print_finding(finding)
    raise typer.Exit(1 if any(finding["level"] == "problem" for finding in findings) else 0)


def _site(client: "Client", prefix: str) -> "MonitoringSite":
    from heliostat.provision.monitoring.site import MonitoringSite

    if not client.address.is_local_socket:
        raise Conflict("The monitoring runs on the machine of the server.", "Run this there.")
    if client.auth.whoami()["user"]["role"] != "admin":
        raise Forbidden("Only an admin may do this.", "Run it as root: sudo helio monitoring check")
    host = socket.gethostname().partition(".")[0]
    url = str(client.status()["url"]).replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    found = [group for group in client.monitoring.targets() if group["labels"]["job"] == "node-exporter"]
    own = [group["targets"][0] for group in found if group["labels"]["node"].partition(".")[0] == host]
    site = MonitoringSite(url, host, bool(own), prefix.rstrip("/"))
    return replace(site, node_exporter_port=int(own[0].rpartition(":")[2])) if own else site


def _new_token(client: "Client", scope: str) -> str:
    """Earlier ones of this machine are revoked."""
    for token in _own_tokens(client):
        if token["scope"] == scope:
            client.tokens.revoke(token["id"])
    return str(client.tokens.create(_token_name(scope), _TOKEN_DAYS, scope)["token"])


def _token_name(scope: str) -> str:
    return f"{scope} of helio monitoring setup"


def _own_tokens(client: "Client") -> list[dict[str, Any]]:
    return [
        token
        for token in client.tokens.list()
        if token["name"] == _token_name(token["scope"]) and token["revoked_at"] is None
    ]


def _check_tokens(client: "Client") -> list[dict[str, Any]]:
    soon = datetime.now(UTC) + _RENEW_BEFORE
    expiring = [token for token in _own_tokens(client) if datetime.fromisoformat(token["expires_at"]) < soon]
    return [
        {
            "check": "tokens",
            "level": "warning",
            "message": f"The token of Prometheus or Alertmanager expires on {token['expires_at'][:10]}.",
            "hint": f"Renew it: helio token revoke {token['id']} && helio monitoring setup --yes",
        }
        for token in expiring
    ]


def _check_receivers(client: "Client") -> list[dict[str, Any]]:
    if any("alerts" in notification["triggers"] for notification in client.notifications.list(all_users=True)):
        return []
    return [
        {
            "check": "receivers",
            "level": "warning",
            "message": "No admin gets alerts.",
            "hint": "Add an address: helio notification add email you@example.org --on alerts",
        }
    ]


def _show(planned: "SetupPlan") -> None:
    messages = {"foreign": "was not written by Heliostat: the setup would refuse",
                "changed": "was edited by hand: the setup would refuse",
                "hidden": "can be read only by root"}  # fmt: skip
    for file in planned.files:
        if file.state != "same":
            print(f"{file.diff or f'{file.path} {messages[file.state]}'}\n")
    unchanged = sum(file.state == "same" for file in planned.files)
    print(f"Files: {len(planned.files) - unchanged} to write, {unchanged} up to date.")
    print(f"Packages to install: {', '.join(planned.packages) or 'none'}.")
    for program, address in planned.ports.items():
        print(f"{program} listens on {address}.")
    if not planned.has_grafana:
        print_message("There is no package grafana here: docs/alerts-and-dashboards.md says where to get it.")
