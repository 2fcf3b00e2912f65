"""Image names in job requests: the user's own images by name or digest, others unchanged."""

import pytest

from heliostat.errors import NotFound
from heliostat.models import Caller, JobRequest, JobSpec
from heliostat.models.environments import Environment, EnvironmentSpec
from heliostat.services.environments.image_definitions import NAME_ENTRY
from heliostat.services.environments.images import find_image_by_name, resolve_image_names
from heliostat.store import environments, images
from heliostat.store.database import Transaction
from unit.services.site import Site

DIGESTS = {"torch:latest": "a" * 64, "torch:2": "b" * 64}
BUILT = {name: f"localhost/{name}-{digest[:16]}" for name, digest in DIGESTS.items()}


@pytest.fixture
def ann(site: Site) -> Caller:
    """She has built two images under one name."""
    caller = site.person("ann")

    def build(tx: Transaction) -> None:
        for name, digest in DIGESTS.items():
            software = EnvironmentSpec("image", ((NAME_ENTRY, name),))
            made = Environment(digest, software, "linux", "ann", "ann", site.clock.at, build_job=1)
            environments.put_environment(tx, made)
            environments.record_environment_use(tx, digest, "ann", site.clock.at)
            images.set_image_name(tx, "ann", name, digest, site.clock.at)

    site.context.store.write(build)
    return caller


def in_image(image: str | None, environment: str | None = None) -> JobRequest:
    return JobRequest(JobSpec(("true",), image=image), environment=environment)


def test_each_request_has_the_image_that_it_names(site: Site, ann: Caller) -> None:
    asked = [
        in_image("torch"),
        in_image("torch:2"),
        in_image("localhost/torch"),
        in_image(None, "a" * 12),
        in_image("python:3.11"),
        in_image("docker.io/library/torch"),
        in_image(None),
    ]
    named = resolve_image_names(site.context, ann, asked)
    latest, second = BUILT["torch:latest"], BUILT["torch:2"]
    assert [one.spec.image for one in named[:4]] == [latest, second, latest, latest]
    assert [one.environment for one in named[:4]] == ["a" * 64, "b" * 64, "a" * 64, "a" * 64]
    assert named[4:] == asked[4:]
    assert resolve_image_names(site.context, ann, named) == named


def test_images_of_others_have_no_name_and_no_digest(site: Site, ann: Caller) -> None:
    bob = site.person("bob")
    assert resolve_image_names(site.context, bob, [in_image("torch")]) == [in_image("torch")]
    with pytest.raises(NotFound, match="You have no environment"):
        resolve_image_names(site.context, bob, [in_image(None, "a" * 64)])
    with pytest.raises(NotFound, match="another user"):
        resolve_image_names(site.context, site.root, [in_image(None, "a" * 64)])


def test_one_image_is_found_by_its_name(site: Site, ann: Caller) -> None:
    found = find_image_by_name(site.context, "ann", "torch:2")
    assert found is not None
    assert found.digest == "b" * 64
    assert find_image_by_name(site.context, "ann", "torch:3") is None
    assert find_image_by_name(site.context, "ann", "not a name") is None
