"""Services: web servers that stay up, each as one or several jobs behind one address."""

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from heliostat.models.jobs import JobId, JobRequest

ServiceId = int
SERVICE_NAME_PATTERN = re.compile(r"[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?")
"""It is a part of an address and of a host name, and never a number."""
SERVICE_NAME_RULE = "must be 1 to 40 of a-z 0-9 -, begin with a letter and not end with -"


class ServiceVisibility(StrEnum):
    """Who may use a service, besides its owner."""

    PRIVATE = "private"  # nobody
    PROJECT = "project"  # the members of its project
    PUBLIC = "public"  # everybody who has an account here


class ServiceState(StrEnum):
    ACTIVE = "active"
    STOPPED = "stopped"


class ReplicaHealth(StrEnum):
    STARTING = "starting"  # it has not answered yet
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"  # it answered no more, or never did: it is replaced


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """When a replica counts as healthy."""

    path: str | None = None  # that answers with 2xx or 3xx; None: it listens, and takes a connection
    interval_seconds: float = 5.0
    timeout_seconds: float = 5.0
    threshold: int = 3  # so many looks in a row must fail
    grace_seconds: float = 300.0  # until it must have answered for the first time


@dataclass(frozen=True, slots=True)
class Service:
    """What somebody wants to stay up."""

    id: ServiceId
    name: str  # one of a kind: it is the address
    user: str
    project: str
    state: ServiceState
    request: JobRequest  # of each replica
    replicas: int
    visibility: ServiceVisibility
    secret: str  # that the proxy shows to the replicas; no browser learns it
    created_at: datetime
    check: HealthCheck = HealthCheck()
    surge: int = 1  # so many more than wanted while it is updated
    drain_seconds: float = 30.0  # for requests that are open when a replica goes
    generation: int = 1  # another one with each update: replicas of an earlier one are replaced
    failures: int = 0  # in a row
    failed_at: datetime | None = None
    problem: str | None = None  # the last one
    retry_at: datetime | None = None  # no replica is started before

    @property
    def desired_replicas(self) -> int:
        return self.replicas if self.state is ServiceState.ACTIVE else 0


@dataclass(frozen=True, slots=True)
class Replica:
    """What a job has besides, as a replica of a service."""

    job_id: JobId
    service_id: ServiceId
    generation: int
    created_at: datetime
    health: ReplicaHealth = ReplicaHealth.STARTING
    attempt: int = 0  # of the job, whose health this is
    healthy_at: datetime | None = None  # since when
    problem: str | None = None
    draining_at: datetime | None = None  # it gets no new requests since
    is_over: bool = False

    def is_healthy(self, attempt: int) -> bool:
        return self.health is ReplicaHealth.HEALTHY and self.attempt == attempt
