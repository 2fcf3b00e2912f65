"""Jobs that ask for an image of their user: by its name, or by the digest of what it was built from."""

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import replace

from heliostat.errors import Invalid, NotFound
from heliostat.models import Caller, JobRequest
from heliostat.models.environments import IMAGES, Environment
from heliostat.models.images import parse_own_name
from heliostat.services.context import Context
from heliostat.services.environments.image_building import image_of_job
from heliostat.services.environments.orders import found
from heliostat.store import environments as stored
from heliostat.store import images


def name_images(context: Context, caller: Caller, requests: Sequence[JobRequest]) -> list[JobRequest]:
    """With the image such a name means now, whatever is built under that name later. May be repeated.

    Each digest and name is looked up once, however many requests have it.
    """
    digests = dict.fromkeys(one.environment for one in requests if isinstance(one.environment, str))
    names = {one.spec.image for one in requests if one.environment is None and one.spec.image is not None}
    by_digest = {digest: _of_digest(context, caller, digest) for digest in digests}
    by_name = _find_all_named(context, caller.user.name, names)
    named: list[JobRequest] = []
    for request in requests:
        if isinstance(request.environment, str):
            named.append(_named(context, request, by_digest[request.environment]))
        elif request.environment is None and request.spec.image in by_name:
            named.append(_named(context, request, by_name[request.spec.image]))
        else:
            named.append(request)
    return named


def find_named(context: Context, user: str, text: str) -> Environment | None:
    """The one of this user with that name; None: there is none, so it means one of a registry."""
    return _find_all_named(context, user, [text]).get(text)


def _find_all_named(context: Context, user: str, texts: Collection[str]) -> dict[str, Environment]:
    names: dict[str, str] = {}
    for text in texts:
        with contextlib.suppress(ValueError):
            names[text] = parse_own_name(text)
    if not names:
        return {}
    with context.store.read() as conn:
        digests = images.digests_named(conn, user, set(names.values()))
        kept = {digest: stored.find(conn, digest) for digest in digests.values()}
    meant = {text: kept.get(digests.get(name, "")) for text, name in names.items()}
    return {text: one.environment for text, one in meant.items() if one is not None}


def _of_digest(context: Context, caller: Caller, digest: str) -> Environment:
    one = found(context, caller, digest).environment
    if one.software.kind in IMAGES and one.owner != caller.user.name:
        raise NotFound("This image is somebody else's.", "They can push it to a registry for you.")
    return one


def _named(context: Context, request: JobRequest, meant: Environment) -> JobRequest:
    if meant.software.kind not in IMAGES:
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
