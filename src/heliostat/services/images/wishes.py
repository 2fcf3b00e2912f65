"""Jobs that ask for an image of their user: by its name, or by the digest of what it was built from."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from heliostat.errors import Invalid, NotFound
from heliostat.models import Caller, JobRequest
from heliostat.models.environments import IMAGES, Environment
from heliostat.models.images import parse_own_name
from heliostat.services.context import Context
from heliostat.services.environments.orders import found
from heliostat.services.images.building import image_of_job
from heliostat.services.likes import once_for_each
from heliostat.store import environments as stored
from heliostat.store import images


def name_images(context: Context, caller: Caller, requests: Sequence[JobRequest]) -> list[JobRequest]:
    """With the image such a name means now, whatever is built under that name later. May be repeated."""
    return once_for_each(partial(_named, context, caller), requests)


def _named(context: Context, caller: Caller, request: JobRequest) -> JobRequest:
    meant = _meant(context, caller, request)
    if meant is None or meant.software.kind not in IMAGES:
        return request
    image, runtime = image_of_job(context, meant.software, meant.digest)
    if request.environment is not None and request.spec.image not in (None, image):
        raise Invalid(
            "An image brings its own software, so it takes no environment.",
            "Leave out one of the two.",
            fields={"environment": "not with another image"},
        )
    spec = replace(request.spec, image=image, runtime=runtime or request.spec.runtime)
    return replace(request, environment=meant.digest, spec=spec)


def _meant(context: Context, caller: Caller, request: JobRequest) -> Environment | None:
    if isinstance(request.environment, str):
        one = found(context, caller, request.environment).environment
        if one.software.kind in IMAGES and one.owner != caller.user.name:
            raise NotFound("This image is somebody else's.", "They can push it to a registry for you.")
        return one
    if request.environment is not None or request.spec.image is None:
        return None
    return find_named(context, caller.user.name, request.spec.image)


def find_named(context: Context, user: str, text: str) -> Environment | None:
    """The one of this user with that name; None: there is none, so it means one of a registry."""
    try:
        name = parse_own_name(text)
    except ValueError:
        return None
    with context.store.read() as conn:
        digest = images.digest_named(conn, user, name)
        kept = None if digest is None else stored.find(conn, digest)
    return None if kept is None else kept.environment
