"""Daemons of a Slurm cluster in start order: packages, systemd units, and command lines without systemd. Pure."""

from heliostat.provision.setup_host import Daemon
from heliostat.provision.slurm.cluster_spec import ClusterSpec
from heliostat.provision.slurm.paths import SlurmPaths

CONTROLLER_PACKAGES = {  # of Debian and Ubuntu, by one program of each
    "munged": "munge",
    "mariadbd-safe": "mariadb-server",  # mariadbd is also in a package without a service
    "slurmdbd": "slurmdbd",
    "slurmctld": "slurmctld",
    "sacctmgr": "slurm-client",
}
NODE_PACKAGES = {"slurmd": "slurmd"}


def required_packages(spec: ClusterSpec) -> dict[str, str]:
    """The controller's packages by program, including those of a node if it is one."""
    return CONTROLLER_PACKAGES | NODE_PACKAGES if nodes_on_controller(spec) else dict(CONTROLLER_PACKAGES)


def nodes_on_controller(spec: ClusterSpec) -> tuple[str, ...]:
    """Names of the nodes that run on the controller's machine."""
    return tuple(node.name for node in spec.nodes if node.hostname == spec.controller)


def munge_daemon(paths: SlurmPaths) -> Daemon:
    files = {
        "socket": paths.munge_socket,
        "key-file": paths.munge_key,
        "pid-file": f"{paths.run_folder}/munge/munged.pid",
        "log-file": f"{paths.prefix}/var/log/munge/munged.log",
        "seed-file": f"{paths.prefix}/var/lib/munge/munged.seed",
    }
    as_munge = ("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups")
    options = tuple(f"--{name}={path}" for name, path in files.items())
    return Daemon("munged", "munge", (*as_munge, "munged", "--foreground", *options))


def database_daemon(spec: ClusterSpec, paths: SlurmPaths) -> Daemon:
    own = (
        ("--no-defaults", f"--datadir={paths.database_folder}", f"--socket={paths.database_socket}")
        if paths.prefix
        else ()
    )
    address = ("--bind-address=127.0.0.1", f"--port={spec.ports.database}")
    return Daemon("mariadbd", "mariadb", ("mariadbd", *own, "--user=mysql", *address))


def accounting_daemon(paths: SlurmPaths) -> Daemon:
    return Daemon("slurmdbd", "slurmdbd", (*_with_conf(paths), "slurmdbd", "-D"))


def controller_daemon(paths: SlurmPaths) -> Daemon:
    return Daemon("slurmctld", "slurmctld", (*_with_conf(paths), "slurmctld", "-D"))


def node_daemon(paths: SlurmPaths, name: str) -> Daemon:
    return Daemon(f"slurmd {name}", "slurmd", (*_with_conf(paths), "slurmd", "-D", "-N", name))


def list_daemons(spec: ClusterSpec, paths: SlurmPaths) -> tuple[Daemon, ...]:
    local_nodes = (node_daemon(paths, name) for name in nodes_on_controller(spec))
    return (
        munge_daemon(paths),
        database_daemon(spec, paths),
        accounting_daemon(paths),
        controller_daemon(paths),
        *local_nodes,
    )


def _with_conf(paths: SlurmPaths) -> tuple[str, ...]:
    return ("env", f"SLURM_CONF={paths.slurm_conf}") if paths.prefix else ()
