"""What has to run for a Slurm, in the order of its start: units of systemd, and command lines without it. Pure."""

from dataclasses import dataclass

from heliostat.provision.slurm.description import Description
from heliostat.provision.slurm.layout import Layout

PACKAGES = {  # of Debian and Ubuntu, by a program of each
    "munged": "munge",
    "mariadbd-safe": "mariadb-server",  # mariadbd is in a package without a service, too
    "slurmdbd": "slurmdbd",
    "slurmctld": "slurmctld",
    "sacctmgr": "slurm-client",
}
NODE_PACKAGES = {"slurmd": "slurmd"}


@dataclass(frozen=True)
class Daemon:
    name: str
    unit: str
    command: tuple[str, ...]  # in the foreground


def packages_for(described: Description) -> dict[str, str]:
    """By program: what the controller needs, and what it needs if it is a node too."""
    return PACKAGES | NODE_PACKAGES if machines_here(described) else dict(PACKAGES)


def machines_here(described: Description) -> tuple[str, ...]:
    """The nodes that are the controller's machine itself."""
    return tuple(one.name for one in described.machines if one.hostname == described.controller)


def munge(layout: Layout) -> Daemon:
    files = {
        "socket": layout.munge_socket,
        "key-file": layout.key,
        "pid-file": f"{layout.run}/munge/munged.pid",
        "log-file": f"{layout.prefix}/var/log/munge/munged.log",
        "seed-file": f"{layout.prefix}/var/lib/munge/munged.seed",
    }
    as_munge = ("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups")
    options = tuple(f"--{name}={path}" for name, path in files.items())
    return Daemon("munged", "munge", (*as_munge, "munged", "--foreground", *options))


def database(described: Description, layout: Layout) -> Daemon:
    own = (
        ("--no-defaults", f"--datadir={layout.database}", f"--socket={layout.database_socket}")
        if layout.prefix
        else ()
    )
    at = ("--bind-address=127.0.0.1", f"--port={described.ports.database}")
    return Daemon("mariadbd", "mariadb", ("mariadbd", *own, "--user=mysql", *at))


def accounting(layout: Layout) -> Daemon:
    return Daemon("slurmdbd", "slurmdbd", (*_with_conf(layout), "slurmdbd", "-D"))


def controller(layout: Layout) -> Daemon:
    return Daemon("slurmctld", "slurmctld", (*_with_conf(layout), "slurmctld", "-D"))


def node(layout: Layout, name: str) -> Daemon:
    return Daemon(f"slurmd {name}", "slurmd", (*_with_conf(layout), "slurmd", "-D", "-N", name))


def all_daemons(described: Description, layout: Layout) -> tuple[Daemon, ...]:
    here = (node(layout, name) for name in machines_here(described))
    return (munge(layout), database(described, layout), accounting(layout), controller(layout), *here)


def _with_conf(layout: Layout) -> tuple[str, ...]:
    return ("env", f"SLURM_CONF={layout.slurm_conf}") if layout.prefix else ()
