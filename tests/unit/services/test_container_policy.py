"""Container requests in a submission."""

from dataclasses import dataclass, replace

import pytest

from heliostat.engines.contract import Capabilities
from heliostat.errors import Invalid
from heliostat.models import JobRequest, JobSpec
from heliostat.services.jobs.submission import resolve_containers
from unit.services.site import Site

BOXED = JobRequest(JobSpec(("true",), image="python:3.11"))
PLAIN = JobRequest(JobSpec(("true",)))


@dataclass
class Engine:
    capabilities: Capabilities
    name: str = "slurm"


def settled(site: Site, request: JobRequest, contains: bool) -> JobRequest:
    site.context.engine = Engine(Capabilities(runs_containers=contains))  # type: ignore[assignment,misc]
    return resolve_containers(site.context, site.root.user, {None: "default"}, [request])[0]


def test_missing_container_settings_get_defaults(site: Site) -> None:
    spec = settled(site, BOXED, contains=True).spec
    assert (spec.image, spec.runtime) == ("docker.io/library/python:3.11", "podman")


def test_an_engine_without_containers_accepts_only_plain_jobs(site: Site) -> None:
    assert settled(site, PLAIN, contains=False) == PLAIN
    with pytest.raises(Invalid, match="slurm does not support containers"):
        settled(site, BOXED, contains=False)


def test_a_violated_container_policy_is_reported_before_engine_limits(site: Site) -> None:
    site.context.settings = replace(
        site.context.settings, containers=replace(site.context.settings.containers, required=True)
    )  # type: ignore[misc]
    with pytest.raises(Invalid, match="must run in a container"):
        settled(site, PLAIN, contains=False)
