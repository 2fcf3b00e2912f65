"""Client API for metrics of the server, and targets for Prometheus."""

from typing import TypedDict

from heliostat.client.transport import ApiRequest, ApiResource


class TargetGroup(TypedDict):
    targets: list[str]  # host and port
    labels: dict[str, str]


class Monitoring(ApiResource):
    def metrics(self) -> dict[str, float]:
        """The newest value of each series, by its name with labels as in PromQL."""
        text = self._transport.send(ApiRequest("GET", "/metrics", root="")).body.decode()
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {series: float(value) for series, _, value in lines}

    def targets(self) -> list[TargetGroup]:
        """The exporters on the nodes, as for the HTTP service discovery of Prometheus."""
        groups: list[TargetGroup] = self._transport.call("GET", "/monitoring/targets")
        return groups
