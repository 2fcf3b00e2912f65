"""What has to run for a Slurm, in the order of its start: units of systemd, and command lines without it. Pure."""

from dataclasses import dataclass

from heliostat.provision.slurm.cluster_spec import ClusterSpec
from heliostat.provision.slurm.paths import SlurmPaths

CONTROLLER_PACKAGES = {  # of Debian and Ubuntu, by a program of each
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


def required_packages(described: ClusterSpec) -> dict[str, str]:
    """By program: what the controller needs, and what it needs if it is a node too."""
    return CONTROLLER_PACKAGES | NODE_PACKAGES if nodes_on_controller(described) else dict(CONTROLLER_PACKAGES)


def nodes_on_controller(described: ClusterSpec) -> tuple[str, ...]:
    """The nodes that are the controller's machine itself."""
    return tuple(one.name for one in described.nodes if one.hostname == described.controller)


def munge_daemon(layout: SlurmPaths) -> Daemon:
    files = {
        "socket": layout.munge_socket,
        "key-file": layout.munge_key,
        "pid-file": f"{layout.run_folder}/munge/munged.pid",
        "log-file": f"{layout.prefix}/var/log/munge/munged.log",
        "seed-file": f"{layout.prefix}/var/lib/munge/munged.seed",
    }
    as_munge = ("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups")
    options = tuple(f"--{name}={path}" for name, path in files.items())
    return Daemon("munged", "munge", (*as_munge, "munged", "--foreground", *options))


def database_daemon(described: ClusterSpec, layout: SlurmPaths) -> Daemon:
    own = (
        ("--no-defaults", f"--datadir={layout.database_folder}", f"--socket={layout.database_socket}")
        if layout.prefix
        else ()
    )
    at = ("--bind-address=127.0.0.1", f"--port={described.ports.database}")
    return Daemon("mariadbd", "mariadb", ("mariadbd", *own, "--user=mysql", *at))


def accounting_daemon(layout: SlurmPaths) -> Daemon:
    return Daemon("slurmdbd", "slurmdbd", (*_with_conf(layout), "slurmdbd", "-D"))


def controller_daemon(layout: SlurmPaths) -> Daemon:
    return Daemon("slurmctld", "slurmctld", (*_with_conf(layout), "slurmctld", "-D"))


def node_daemon(layout: SlurmPaths, name: str) -> Daemon:
    return Daemon(f"slurmd {name}", "slurmd", (*_with_conf(layout), "slurmd", "-D", "-N", name))


def list_daemons(described: ClusterSpec, layout: SlurmPaths) -> tuple[Daemon, ...]:
    here = (node_daemon(layout, name) for name in nodes_on_controller(described))
    return (
        munge_daemon(layout),
        database_daemon(described, layout),
        accounting_daemon(layout),
        controller_daemon(layout),
        *here,
    )


def _with_conf(layout: SlurmPaths) -> tuple[str, ...]:
    return ("env", f"SLURM_CONF={layout.slurm_conf}") if layout.prefix else ()
