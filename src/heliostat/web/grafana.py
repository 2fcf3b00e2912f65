"""Links to the dashboards of Grafana, if an admin has configured its address."""

from datetime import datetime
from urllib.parse import urlencode

from heliostat.config import Settings
from heliostat.models import Job


def job_dashboard_url(settings: Settings, job: Job) -> str:
    """With the time range of the job; empty: no Grafana, or the job has not started."""
    if job.started_at is None:
        return ""
    ends = "now" if job.ended_at is None else _milliseconds(job.ended_at)
    return _dashboard_url(settings, "job", str(job.id), (_milliseconds(job.started_at), ends))


def node_dashboard_url(settings: Settings, node: str, days: int) -> str:
    """Empty: no Grafana."""
    return _dashboard_url(settings, "node", node, (f"now-{days}d", "now"))


def _dashboard_url(settings: Settings, name: str, value: str, span: tuple[str, str]) -> str:
    """`name` is that of the dashboard and of its variable."""
    base = settings.monitoring.grafana_url
    if base is None:
        return ""
    query = urlencode({f"var-{name}": value, "from": span[0], "to": span[1]})
    return f"{base.rstrip('/')}/d/heliostat-{name}/{name}?{query}"


def _milliseconds(at: datetime) -> str:
    return str(int(at.timestamp() * 1000))
