"""Which token scopes allow a request. Everything that is not listed needs the scope full."""

from heliostat.models import TokenScope

_METRICS = {"/api/v1/status", "/api/v1/monitoring/targets", "/metrics"}
_ALERTS = "/api/v1/monitoring/alerts"
_READ_BY_POST = {"/api/v1/when", "/api/v1/jobs/wait", "/api/v1/schedules/preview"}
_SUBMIT = {
    *("jobs", "uploads", "environments", "images", "schedules", "workflows"),
    *("sweeps", "sessions", "notebooks", "services"),
}
_NOT_SUBMIT = {"key", "shares", "prune"}  # access for others or for later, and administration


def scopes_that_allow(method: str, path: str) -> frozenset[TokenScope]:
    """Scopes limit a token; its user's permissions are checked as well."""
    scopes = {TokenScope.FULL}
    if method in ("GET", "HEAD") or path in _READ_BY_POST:
        scopes |= {TokenScope.READ, TokenScope.SUBMIT}
        if path in _METRICS:
            scopes.add(TokenScope.METRICS)
    elif path == _ALERTS:
        scopes.add(TokenScope.ALERTS)
    elif _is_submission(path):
        scopes.add(TokenScope.SUBMIT)
    return frozenset(scopes)


def _is_submission(path: str) -> bool:
    match path.strip("/").split("/"):
        case ["api", "v1", collection, *rest]:
            return collection in _SUBMIT and not _NOT_SUBMIT.intersection(rest)
        case ["v1", "scheduler", *_] | ["scheduler", *_]:  # of Chronos
            return True
    return False
