"""What a token with a scope may be used for."""

import pytest

from heliostat.api.token_scopes import scopes_that_allow
from heliostat.models import TokenScope

METRICS, ALERTS, READ, SUBMIT, FULL = (
    TokenScope(name) for name in ("metrics", "alerts", "read", "submit", "full")
)


@pytest.mark.parametrize(
    ("method", "path", "scopes"),
    [
        ("GET", "/api/v1/status", {METRICS, READ, SUBMIT, FULL}),
        ("GET", "/api/v1/monitoring/targets", {METRICS, READ, SUBMIT, FULL}),
        ("GET", "/metrics", {METRICS, READ, SUBMIT, FULL}),
        ("GET", "/api/v1/whoami", {READ, SUBMIT, FULL}),
        ("HEAD", "/api/v1/jobs/1/logs", {READ, SUBMIT, FULL}),
        ("GET", "/v1/scheduler/jobs", {READ, SUBMIT, FULL}),
        ("POST", "/api/v1/jobs/wait", {READ, SUBMIT, FULL}),
        ("POST", "/api/v1/jobs", {SUBMIT, FULL}),
        ("POST", "/api/v1/jobs/7/exec", {SUBMIT, FULL}),
        ("DELETE", "/api/v1/schedules/nightly", {SUBMIT, FULL}),
        ("POST", "/scheduler/iso8601", {SUBMIT, FULL}),
        ("POST", "/api/v1/status", {FULL}),
        ("POST", "/api/v1/monitoring/alerts", {ALERTS, FULL}),
        ("GET", "/api/v1/monitoring/alerts", {READ, SUBMIT, FULL}),
        ("POST", "/api/v1/environments/prune", {FULL}),
        ("POST", "/api/v1/sessions/3/key", {FULL}),
        ("PUT", "/api/v1/sessions/3/shares/bob", {FULL}),
        ("POST", "/api/v1/tokens", {FULL}),
        ("DELETE", "/api/v1/tokens/1", {FULL}),
        ("POST", "/api/v1/login/link", {FULL}),
        ("PUT", "/api/v1/users/anna/password", {FULL}),
        ("POST", "/api/v1/nodes/n1/drain", {FULL}),
        ("POST", "/api/v1/jobs-of-tomorrow", {FULL}),
        ("POST", "/jobs", {FULL}),
    ],
)
def test_a_request_needs_a_scope(method: str, path: str, scopes: set[TokenScope]) -> None:
    assert scopes_that_allow(method, path) == scopes
