"""Renders the files of Prometheus, Alertmanager and Grafana. Pure."""

import base64
import ctypes
import hashlib
from importlib.resources import files

from heliostat.errors import Conflict
from heliostat.provision.managed_files import DesiredFile, with_header
from heliostat.provision.monitoring.site import ALERTMANAGER, NODE_EXPORTER, PROMETHEUS, UNIX_USER, MonitoringSite

_HEADER = "# Made by Heliostat (helio monitoring setup). Move this file away to use one of your own."
ALERTMANAGER_USER = "heliostat"
_HIDDEN = r"^(.+)$"
_HASH = r"heliostat: (.+)$"


def desired_files(
    site: MonitoringSite, secrets: dict[str, str], defaults: frozenset[str], with_grafana: bool
) -> list[DesiredFile]:
    """`secrets`: the tokens by scope, and `password`. `defaults`: MD5 digests of unchanged files of packages."""
    texts = {
        site.folder / "heliostat-rules.yml": _package_file("rules.yml"),
        site.folder / "prometheus.yml": _prometheus_yml(site),
        site.folder / "alertmanager.yml": _alertmanager_yml(site),
    }
    web_config = with_header(_HEADER, _web_config(secrets["password"]))
    return [
        *_secret_files(site, secrets),
        DesiredFile(site.folder / "heliostat-alertmanager-web.yml", web_config, 0o600, UNIX_USER, secret=_HASH),
        *(DesiredFile(path, with_header(_HEADER, text), replaces=defaults) for path, text in texts.items()),
        *(() if site.prefix else _unit_files(site)),
        *(_grafana_files(site) if with_grafana else ()),
    ]


def _secret_files(site: MonitoringSite, secrets: dict[str, str]) -> list[DesiredFile]:
    """Only Prometheus and Alertmanager can read them."""
    paths = {site.token_file(scope): text for scope, text in secrets.items() if scope != "password"}
    return [
        DesiredFile(path, text + "\n", 0o600, UNIX_USER, secret=_HIDDEN, has_header=False)
        for path, text in {site.password_file: secrets["password"], **paths}.items()
    ]


def _prometheus_yml(site: MonitoringSite) -> str:
    # Some versions of Prometheus have no default type for service discovery.
    token = f"authorization: {{ type: Bearer, credentials_file: {site.token_file('metrics')} }}"
    login = f"basic_auth: {{ username: {ALERTMANAGER_USER}, password_file: {site.password_file} }}"
    alertmanager = f"static_configs: [{{ targets: ['127.0.0.1:{site.alertmanager_port}'] }}]"
    return f"""\
# Rules of your own: {site.folder}/rules/*.yml. Other targets: {site.folder}/targets/*.yml (file_sd).
global:
  scrape_interval: {site.scrape_seconds}s
  evaluation_interval: {site.scrape_seconds}s

rule_files: [heliostat-rules.yml, rules/*.yml]

alerting:
  alertmanagers:
    - {alertmanager}
      {login}

scrape_configs:
  - job_name: heliostat
    honor_labels: true  # heliostat_job_gpu_info has a label job
    static_configs: [{{ targets: ['{site.server_url.removeprefix("http://")}'] }}]
    {token}
  - job_name: nodes
    sample_limit: 20000  # programs of users run there: one that imitates an exporter must not fill the disk
    label_value_length_limit: 1000
    http_sd_configs:
      - url: {site.server_url}/api/v1/monitoring/targets
        {token}
{"" if site.is_node else _own_exporter(site)}\
  - job_name: prometheus
    static_configs: [{{ targets: ['127.0.0.1:{site.prometheus_port}'] }}]
  - job_name: alertmanager
    {alertmanager}
    {login}
  - job_name: other
    file_sd_configs: [{{ files: [targets/*.yml] }}]
"""


def _own_exporter(site: MonitoringSite) -> str:
    """For a machine that runs Heliostat and no jobs."""
    target = f"targets: ['127.0.0.1:{site.node_exporter_port}'], labels: {{ node: '{site.host}' }}"
    return f"  - job_name: node-exporter\n    static_configs: [{{ {target} }}]\n"


def _alertmanager_yml(site: MonitoringSite) -> str:
    return f"""\
# Heliostat sends the messages: helio notification add email you@example.org --on alerts
route:
  receiver: heliostat
  group_by: [alertname]
  group_wait: {2 * site.scrape_seconds}s
  group_interval: 5m
  repeat_interval: 12h

receivers:
  - name: heliostat
    webhook_configs:
      - url: {site.server_url}/api/v1/monitoring/alerts
        max_alerts: 500
        http_config:
          authorization: {{ type: Bearer, credentials_file: {site.token_file("alerts")} }}
"""


def _web_config(password: str) -> str:
    """Without a password all users of this machine could silence alerts, and send alerts to the admins."""
    return f"basic_auth_users:\n  {ALERTMANAGER_USER}: {_bcrypt(password)}\n"


def _bcrypt(password: str) -> str:
    """Alertmanager knows no other hash. The salt is derived: the same password gives the same file."""
    salt = base64.b64encode(hashlib.sha256(password.encode()).digest(), b"./").decode()[:22]
    try:
        library = ctypes.CDLL("libcrypt.so.1")
    except OSError as error:
        raise Conflict("libcrypt.so.1 is missing.", "Install it: apt-get install libcrypt1") from error
    library.crypt.restype = ctypes.c_char_p
    hashed: bytes = library.crypt(password.encode(), f"$2b$10${salt}".encode())
    return hashed.decode()


def _unit_files(site: MonitoringSite) -> list[DesiredFile]:
    """$ARGS: options of the admin, from /etc/default."""
    return [
        DesiredFile(
            site.folder.parent / "systemd" / "system" / f"{name}.service.d" / "heliostat.conf",
            with_header(
                _HEADER,
                f"[Service]\nExecStart=\nExecStart=/usr/bin/{name} {' '.join(site.arguments(name))} $ARGS\n",
            ),
        )
        for name in (NODE_EXPORTER, ALERTMANAGER, PROMETHEUS)
    ]


def _grafana_files(site: MonitoringSite) -> list[DesiredFile]:
    folder = site.grafana_folder
    datasource = f"""\
apiVersion: 1
datasources:
  - {{ name: Heliostat, type: prometheus, access: proxy, url: {site.prometheus_url}, isDefault: true }}
"""
    provider = f"""\
apiVersion: 1
providers:
  - {{ name: heliostat, folder: Heliostat, type: file, options: {{ path: {folder}/heliostat-dashboards }} }}
"""
    dashboards = files("heliostat.monitoring").joinpath("dashboards")
    return [
        DesiredFile(folder / "provisioning/datasources/heliostat.yml", with_header(_HEADER, datasource)),
        DesiredFile(folder / "provisioning/dashboards/heliostat.yml", with_header(_HEADER, provider)),
        *(
            DesiredFile(folder / "heliostat-dashboards" / one.name, one.read_text("utf-8"), has_header=False)
            for one in sorted(dashboards.iterdir(), key=lambda one: one.name)
        ),
    ]


def _package_file(name: str) -> str:
    return files("heliostat.monitoring").joinpath(name).read_text("utf-8")
