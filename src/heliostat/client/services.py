"""Client API for long-running web services."""

from collections.abc import Mapping
from typing import Any, TypedDict

from heliostat.client.api_types import AccessKeyData
from heliostat.client.request_bodies import job_body
from heliostat.client.transport import ApiResource, drop_none, quote_path_segment

_SERVICE_FIELDS = ("replicas", "visibility", "health", "surge", "drain", "kind")


class ReplicaData(TypedDict):
    """A replica: one job of a service."""

    job_id: int
    state: str
    job_state: str | None
    node: str | None
    generation: int
    open_requests: int
    healthy_at: str | None
    problem: str | None
    created_at: str


class ServiceData(TypedDict, total=False):
    """A service; lists omit the last five fields."""

    name: str
    user: str
    project: str
    state: str
    visibility: str
    replicas: int
    healthy: int
    summary: str
    url: str
    generation: int
    is_updated: bool
    failures: int
    failed_at: str | None
    problem: str | None
    retry_at: str | None
    created_at: str
    surge: int
    drain_seconds: float
    health: dict[str, Any]
    job: dict[str, Any]
    replica_jobs: list[ReplicaData]


ServiceList = list[ServiceData]


class Services(ApiResource):
    def create(self, name: str, command: Any = None, **fields: Any) -> ServiceData:
        """Starts a web service, whose command must listen on the port in $PORT. Fields: `replicas`, `visibility`,
        `health`, `surge`, `drain` and the fields of a job."""
        return self._call("POST", "/services", service_body({"name": name, "command": command, **fields}))

    def update(self, name: str, command: Any = None, **fields: Any) -> ServiceData:
        """Replaces the definition of a service; replicas are replaced one by one."""
        body = service_body({"name": name, "command": command, **fields})
        return self._call("PUT", f"/services/{quote_path_segment(name)}", body)

    def list(self) -> ServiceList:
        """Services that the caller may use or manage, by name."""
        return self._items("/services")

    def get(self, name: str) -> ServiceData:
        """A service with its replicas."""
        return self._call("GET", f"/services/{quote_path_segment(name)}")

    def scale(self, name: str, replicas: int | None = None, *, visibility: str | None = None) -> ServiceData:
        """Changes the number of replicas."""
        body = drop_none(replicas=replicas, visibility=visibility)
        return self._call("PATCH", f"/services/{quote_path_segment(name)}", body)

    def restart(self, name: str) -> ServiceData:
        """Replaces all replicas one by one, or starts a stopped service."""
        return self._call("POST", f"/services/{quote_path_segment(name)}/restart", {})

    def stop(self, name: str) -> ServiceData:
        """Finishes open requests, then ends all replicas."""
        return self._call("POST", f"/services/{quote_path_segment(name)}/stop", {})

    def remove(self, name: str) -> None:
        """Removes a stopped service."""
        self._transport.call("DELETE", f"/services/{quote_path_segment(name)}")

    def create_key(self, name: str) -> AccessKeyData:
        """A key for programs, to be sent as `Authorization: Bearer KEY` to the url of the service."""
        data: AccessKeyData = self._transport.call("POST", f"/services/{quote_path_segment(name)}/key", {})
        return data

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> ServiceData:
        data: ServiceData = self._transport.call(method, path, body)
        return data


def service_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The body of POST /services; fields that are None get the server's default."""
    service_fields = {name: fields[name] for name in _SERVICE_FIELDS if fields.get(name) is not None}
    return {
        **job_body({name: value for name, value in fields.items() if name not in _SERVICE_FIELDS}),
        **service_fields,
    }
