"""Services: long-running web servers, each with one or several replica jobs behind one address."""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from heliostat.models.jobs import JobId, JobRequest

ServiceId = int
SERVICE_NAME_PATTERN = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")
"""Part of a URL and of a host name, and never a number."""
SERVICE_NAME_RULE = "must have 1 to 40 of the characters a-z 0-9 -, begin with a letter and not end with -"


class ServiceVisibility(StrEnum):
    """Users who may use a service besides its owner."""

    PRIVATE = "private"  # none
    PROJECT = "project"  # the members of its project
    PUBLIC = "public"  # all users


class ServiceState(StrEnum):
    ACTIVE = "active"
    STOPPED = "stopped"


class ReplicaHealth(StrEnum):
    STARTING = "starting"  # no successful check yet
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"  # its checks fail: it is replaced


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """Health check of a replica."""

    path: str | None = None  # must respond with 2xx or 3xx; None: it must accept a connection
    interval_seconds: float = 5.0
    timeout_seconds: float = 5.0
    threshold: int = 3  # number of consecutive failures
    grace_seconds: float = 300.0  # until the first successful check


@dataclass(frozen=True, slots=True)
class Service:
    """A service and its desired state."""

    id: ServiceId
    name: str  # unique: part of its address
    user: str
    project: str
    state: ServiceState
    request: JobRequest  # of each replica
    replicas: int
    visibility: ServiceVisibility
    secret: str  # sent by the proxy to the replicas, never to a browser
    created_at: datetime
    check: HealthCheck = HealthCheck()
    surge: int = 1  # additional replicas during an update
    drain_seconds: float = 30.0  # for open requests when a replica is removed
    generation: int = 1  # increases with each update; replicas of earlier generations are replaced
    failures: int = 0  # consecutive
    failed_at: datetime | None = None
    problem: str | None = None  # the latest
    retry_at: datetime | None = None  # no replica is started before

    @property
    def desired_replicas(self) -> int:
        return self.replicas if self.state is ServiceState.ACTIVE else 0


@dataclass(frozen=True, slots=True)
class Replica:
    """The data of a service replica that are not part of its job."""

    job_id: JobId
    service_id: ServiceId
    generation: int
    created_at: datetime
    health: ReplicaHealth = ReplicaHealth.STARTING
    attempt: int = 0  # the attempt to which the health applies
    healthy_at: datetime | None = None  # since when
    problem: str | None = None
    draining_at: datetime | None = None  # since when it gets no new requests
    is_over: bool = False

    def is_healthy(self, attempt: int) -> bool:
        return self.health is ReplicaHealth.HEALTHY and self.attempt == attempt
