"""What is monitored, and where the programs and their files are."""

from dataclasses import dataclass
from pathlib import Path

from heliostat.provision.setup_host import Daemon

PROMETHEUS, ALERTMANAGER, NODE_EXPORTER = "prometheus", "prometheus-alertmanager", "prometheus-node-exporter"
PACKAGES = {name: name for name in (PROMETHEUS, ALERTMANAGER, NODE_EXPORTER)}  # of Debian, by program
UNIX_USER = "prometheus"  # of all three
TOKEN_SCOPES = ("metrics", "alerts")


@dataclass(frozen=True)
class MonitoringSite:
    server_url: str  # of Heliostat, reached from this machine
    host: str  # name of this machine
    is_node: bool  # whether it is a node of Heliostat, which Prometheus discovers
    prefix: str = ""  # empty: Debian's paths
    prometheus_port: int = 9090
    alertmanager_port: int = 9093
    node_exporter_port: int = 9100
    scrape_seconds: int = 15

    @property
    def folder(self) -> Path:
        return Path(f"{self.prefix}/etc/prometheus")

    @property
    def state_folder(self) -> Path:
        return Path(f"{self.prefix}/var/lib/prometheus")

    @property
    def grafana_folder(self) -> Path:
        return Path(f"{self.prefix}/etc/grafana")

    @property
    def password_file(self) -> Path:
        return self.folder / "heliostat-alertmanager.password"

    def token_file(self, scope: str) -> Path:
        return self.folder / f"heliostat-{scope}.token"

    @property
    def prometheus_url(self) -> str:
        return f"http://127.0.0.1:{self.prometheus_port}"

    @property
    def alertmanager_url(self) -> str:
        return f"http://127.0.0.1:{self.alertmanager_port}"

    def daemons(self) -> tuple[Daemon, ...]:
        """In the order in which they start."""
        return tuple(
            Daemon(name, name, (*_AS_USER, name, *self.arguments(name)))
            for name in (NODE_EXPORTER, ALERTMANAGER, PROMETHEUS)
        )

    def arguments(self, program: str) -> tuple[str, ...]:
        """node_exporter is reached by the name of the node; the others only from this machine."""
        if program == NODE_EXPORTER:
            return (f"--web.listen-address=:{self.node_exporter_port}",)
        if program == ALERTMANAGER:
            return (
                f"--config.file={self.folder}/alertmanager.yml",
                f"--storage.path={self.state_folder}/alertmanager",
                f"--web.listen-address=127.0.0.1:{self.alertmanager_port}",
                f"--web.config.file={self.folder}/heliostat-alertmanager-web.yml",
                "--cluster.listen-address=",  # there is only one
            )
        return (
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.state_folder}/metrics2",
            f"--web.listen-address=127.0.0.1:{self.prometheus_port}",
        )


_AS_USER = ("setpriv", f"--reuid={UNIX_USER}", f"--regid={UNIX_USER}", "--clear-groups")
