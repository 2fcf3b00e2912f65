"""Verbs on images that people build: build, list, look, push, remove. Each person's are their own."""

import contextlib
import os
import re
import secrets
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from heliostat.config import Home
from heliostat.controller.failure_details import read_job_text
from heliostat.engines.contract import Engine
from heliostat.engines.job_folders import AttemptRefused, require_run_as_user
from heliostat.errors import Conflict, HeliostatError, Invalid, NotFound
from heliostat.models import Caller, JobRequest, JobState
from heliostat.models.environments import (
    IMAGE_ENVIRONMENT_KINDS,
    MIN_DIGEST_PREFIX,
    Environment,
    EnvironmentSpec,
    EnvironmentState,
)
from heliostat.models.images import ImagePush, format_registry_login, parse_image_name
from heliostat.runtimes.container_policy import check_registry, make_container_policy
from heliostat.runtimes.image_names import BUILT_IMAGE, parse_image
from heliostat.services.accounts.lookup import require_unix_user_and_project
from heliostat.services.context import Context
from heliostat.services.environments import lifecycle as environments
from heliostat.services.environments.image_builds import draft_push_job, image_and_runtime_of
from heliostat.services.environments.image_definitions import (
    CONTAINERFILE_ENTRY,
    DEFINITION_ENTRY,
    NAME_ENTRY,
    UPLOAD_ENTRY,
    generate_containerfile,
    validate_apptainer_definition,
    validate_containerfile,
)
from heliostat.services.environments.lifecycle import EnvironmentView
from heliostat.services.environments.requests import (
    prepare_environment_request,
    provide_environment,
    require_environment,
    trusted_package_urls,
)
from heliostat.services.environments.spec_validation import validate_environment_spec
from heliostat.store import accounts, transitions
from heliostat.store import environments as stored_environments
from heliostat.store import images as stored
from heliostat.store.database import Store, Transaction
from heliostat.store.jobs import get_jobs

_LONGEST_USERNAME, _LONGEST_PASSWORD = 200, 20_000

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LOGIN_SECONDS = 3600.0  # in which its job must have been stored


@dataclass(frozen=True, slots=True)
class ImageBuildRequest:
    """What to build: one of a Containerfile, a definition file, and packages on top of a base."""

    name: str
    containerfile: str | None = None
    definition: str | None = None
    packages: EnvironmentSpec | None = None
    base: str | None = None  # for the packages
    upload: str | None = None  # the folder it copies from


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    username: str
    password: str


@dataclass(frozen=True, slots=True)
class ImageView:
    """An image as it is now."""

    environment_view: EnvironmentView  # what it is as an environment
    names: tuple[str, ...]  # that mean it; none: they mean a newer one
    pushes: tuple[ImagePush, ...] = ()

    @property
    def digest(self) -> str:
        return self.environment_view.environment.digest

    @property
    def built_as(self) -> str:
        return dict(self.environment_view.environment.spec.files)[NAME_ENTRY]

    @property
    def image_digest(self) -> str | None:
        """What containers say it is."""
        return (self.environment_view.environment.lock or "").strip() or None


def build_image(
    context: Context, caller: Caller, wish: ImageBuildRequest, project: str | None = None
) -> ImageView:
    """The one there is of the same contents, or a build of it in the queue; the name means it from now on."""
    unix_user, settled = require_unix_user_and_project(context, caller.user, project)
    name, user = require_image_name(wish.name), caller.user.name
    check_registry(BUILT_IMAGE, make_container_policy(context.settings))
    limit = context.settings.queue.max_jobs_per_user
    if context.controller.count_unfinished_jobs(user) >= limit:
        raise Conflict(f"You have {limit} unfinished jobs.", "Wait until some are over.", code="queue_full")
    order = prepare_environment_request(
        context, caller, _software(context, user, name, wish), (unix_user, settled)
    )

    def change(tx: Transaction) -> None:
        provide_environment(context, tx, order)
        stored.set_image_name(tx, user, name, order.environment.digest, context.now())

    context.store.write(change)
    return show_image(context, caller, order.environment.digest)


def list_images(context: Context, caller: Caller, *, all_users: bool = False) -> list[ImageView]:
    """One's own, the one used last first; with `all_users`, for admins, all."""
    shown = environments.list_environments(context, caller, all_users=all_users, images=True)
    with context.store.read() as conn:
        names = stored.list_image_names(conn, [one.environment.digest for one in shown])
    return [ImageView(one, tuple(names.get(one.environment.digest, ()))) for one in shown]


def show_image(context: Context, caller: Caller, name: str) -> ImageView:
    """By its name, its digest, or the beginning of that; with its pushes."""
    shown = environments.show_environment(context, caller, resolve_image_digest(context, caller, name))
    digest = shown.environment.digest
    with context.store.read() as conn:
        names, pushes = (
            stored.list_image_names(conn, [digest]).get(digest, []),
            stored.list_image_pushes(conn, digest),
        )
    if any(push.state is JobState.COMPLETED and push.pushed_digest is None for push in pushes):
        record_pushed_digests(context.store, context.engine)  # the keeper does so too, a moment later
        with context.store.read() as conn:
            pushes = stored.list_image_pushes(conn, digest)
    return ImageView(shown, tuple(names), tuple(pushes))


def resolve_image_digest(context: Context, caller: Caller, name: str) -> str:
    """Of what it was built from. Raises NotFound."""
    if named := find_image_by_name(context, caller.user.name, name):
        return named.digest
    wanted = name.removeprefix("@")
    if len(wanted) >= MIN_DIGEST_PREFIX and not set(wanted) - set("0123456789abcdef"):
        one = require_environment(context, caller, wanted).environment
        if one.spec.kind in IMAGE_ENVIRONMENT_KINDS:
            return one.digest
    raise NotFound(f"You have no image {name[:80]!a}.", "`helio image list` lists yours.")


def remove_image(context: Context, caller: Caller, name: str) -> bool:
    """Whether it is gone. What was pushed stays where it is."""
    return environments.remove_environment(context, caller, resolve_image_digest(context, caller, name))


def push_image(
    context: Context, caller: Caller, name: str, target: str, login: RegistryLogin | None = None
) -> ImagePush:
    """A job that brings it to a registry. The login is used for this one time and kept nowhere."""
    image = show_image(context, caller, name)
    _check_pushable(image, caller)
    address = _target(context, target)
    _check_login(login)
    unix_user, project = require_unix_user_and_project(context, caller.user, None)
    kept = None if login is None else _keep_login(context, unix_user, parse_image(address).registry, login)
    who = (caller.user.name, unix_user, project)
    draft = draft_push_job(context, who, (image.built_as, image.digest), address, kept)

    def change(tx: Transaction) -> ImagePush:
        now = context.now()
        job = replace(draft, id=tx.ids.allocate("jobs")[0], submitted_at=now)
        push = ImagePush(job.id, image.digest, address, now, state=job.state)
        transitions.add_jobs(tx, [job])
        stored.add_image_push(tx, push)
        accounts.add_audit_entry(tx, caller, "image.push", f"image {image.digest[:12]}", {"target": address}, now)
        return push

    return context.store.write(change)


def require_image_name(text: str) -> str:
    try:
        return parse_image_name(text)
    except ValueError as error:
        raise Invalid(f"{text[:100]!a} {error}.", "Such as torch:2.", fields={"name": str(error)}) from None


def _software(context: Context, user: str, name: str, wish: ImageBuildRequest) -> EnvironmentSpec:
    """What decides what it is. Raises Invalid."""
    rules = make_container_policy(context.settings)
    if wish.upload is not None and context.uploads.find_tree(user, wish.upload) is None:
        hint = "Send it again: helio image build does."
        raise Invalid("You have uploaded no such folder.", hint, fields={"upload": "not there"})
    folder = () if wish.upload is None else ((UPLOAD_ENTRY, wish.upload),)
    named = ((NAME_ENTRY, name), *folder)
    if wish.definition is not None:
        return EnvironmentSpec(
            "definition", ((DEFINITION_ENTRY, validate_apptainer_definition(wish.definition, rules).text), *named)
        )
    if wish.packages is None:
        begun = validate_containerfile(wish.containerfile or "", rules)
        return EnvironmentSpec("image", ((CONTAINERFILE_ENTRY, begun.text), *named))
    packages = validate_environment_spec(wish.packages, trusted_package_urls(context))
    begun = generate_containerfile(packages, wish.base or "", rules)
    return EnvironmentSpec("image", ((CONTAINERFILE_ENTRY, begun.text), *packages.files, *named))


def _check_pushable(image: ImageView, caller: Caller) -> None:
    one = image.environment_view.environment
    if one.owner != caller.user.name:
        raise NotFound("This image is somebody else's.", f"Only {one.created_by} can push it.")
    if one.spec.kind != "image":
        raise Conflict("An image of apptainer is a file, and is not pushed.", "Build it from a Containerfile.")
    if image.environment_view.state is not EnvironmentState.READY:
        why = f": {image.environment_view.reason}" if image.environment_view.reason else ""
        raise Conflict(
            f"The image is {image.environment_view.state.value}{why}.", f"See `helio image show {image.built_as}`."
        )


def _target(context: Context, text: str) -> str:
    try:
        image = parse_image(text)
    except ValueError as error:
        raise _wrong_target(f"{text[:100]!a} {error}.") from None
    if not text.startswith(f"{image.registry}/"):
        raise _wrong_target(f"{text[:100]!a} names no registry.")
    if image.digest is not None:
        raise _wrong_target("A digest is what comes out of a push, it cannot be asked for.")
    check_registry(image, make_container_policy(context.settings))
    return str(image)


def _wrong_target(message: str) -> Invalid:
    return Invalid(
        message, "Write REGISTRY/NAME:TAG: registry.example.org/lab/torch:2.", fields={"target": message}
    )


def _check_login(login: RegistryLogin | None) -> None:
    if login is None:
        return
    if not login.username or len(login.username) > _LONGEST_USERNAME or not _is_plain(login.username):
        hint = "Write the name you have at the registry."
        raise Invalid("That is no name at a registry.", hint, fields={"username": "not a name"})
    if (
        not login.password
        or len(login.password) > _LONGEST_PASSWORD
        or not _is_plain(login.password.replace(":", ""))
    ):
        hint = "Give the one of that name, or a token."
        raise Invalid("That is no password.", hint, fields={"password": "missing, or too long"})


def _is_plain(text: str) -> bool:
    return text.isprintable() and ":" not in text


def _keep_login(context: Context, unix_user: str, registry: str, login: RegistryLogin) -> str:
    """A folder that only the job of this person can read, and empties as soon as it begins."""
    home = context.settings.home
    try:
        person = require_run_as_user(unix_user)
        home.registry_logins.mkdir(exist_ok=True)
        home.registry_logins.chmod(0o711)
        folder = home.registry_logins / secrets.token_hex(16)
        folder.mkdir(0o700)
        _write(
            str(folder / "login"),
            format_registry_login(registry, login.username, login.password),
            (person.uid, person.gid),
        )
        os.chown(folder, person.uid, person.gid)
    except (AttemptRefused, OSError) as error:
        raise HeliostatError(f"The login cannot be kept for the push: {error}.", "See `helio doctor`.") from error
    return str(folder)


def _write(path: str, text: str, owner: Sequence[int]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchown(descriptor, owner[0], owner[1])


def record_pushed_digests(store: Store, engine: Engine) -> None:
    """What they are at the registry, for those that are over. A crash before leaves it for the next time."""
    with store.read() as conn:
        unread = stored.list_pushes_without_digest(conn)
    for push in unread:
        text = read_job_text(engine, push.job_id, "work/digest", 200)
        if found := _DIGEST.match(text):
            store.write(partial(stored.set_pushed_digest, job_id=push.job_id, pushed_digest=found[0]))


def remove_stale_logins(store: Store, home: Home, now: datetime) -> None:
    """Those whose push has ended, or never was stored. A push takes its own away as soon as it begins."""
    with contextlib.suppress(FileNotFoundError), store.read() as conn:
        entries = list(os.scandir(home.registry_logins))
        if not entries:
            return
        jobs = get_jobs(conn, {push.job_id for push in stored.list_unfinished_pushes(conn)}).values()
        scripts = [job.spec.script or "" for job in jobs]
        for entry in entries:
            is_old = now.timestamp() - entry.stat(follow_symlinks=False).st_mtime > _LOGIN_SECONDS
            if is_old and not any(entry.name in script for script in scripts):
                words = ["rm", "-rf", "--one-file-system", "--", entry.path]
                subprocess.run(words, check=False, capture_output=True, stdin=subprocess.DEVNULL)


def resolve_image_names(context: Context, caller: Caller, requests: Sequence[JobRequest]) -> list[JobRequest]:
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


def find_image_by_name(context: Context, user: str, text: str) -> Environment | None:
    """The one of this user with that name; None: there is none, so it means one of a registry."""
    return _find_all_named(context, user, [text]).get(text)


def _find_all_named(context: Context, user: str, texts: Collection[str]) -> dict[str, Environment]:
    names: dict[str, str] = {}
    for text in texts:
        with contextlib.suppress(ValueError):
            names[text] = parse_image_name(text)
    if not names:
        return {}
    with context.store.read() as conn:
        digests = stored.find_image_digests(conn, user, set(names.values()))
        kept = {digest: stored_environments.find_environment(conn, digest) for digest in digests.values()}
    meant = {text: kept.get(digests.get(name, "")) for text, name in names.items()}
    return {text: one.environment for text, one in meant.items() if one is not None}


def _of_digest(context: Context, caller: Caller, digest: str) -> Environment:
    one = require_environment(context, caller, digest).environment
    if one.spec.kind in IMAGE_ENVIRONMENT_KINDS and one.owner != caller.user.name:
        raise NotFound("This image is somebody else's.", "They can push it to a registry for you.")
    return one


def _named(context: Context, request: JobRequest, meant: Environment) -> JobRequest:
    if meant.spec.kind not in IMAGE_ENVIRONMENT_KINDS:
        return request
    image, runtime = image_and_runtime_of(context, meant.spec, meant.digest)
    if request.environment is not None and request.spec.image not in (None, image):
        raise Invalid(
            "An image brings its own software, so it takes no environment.",
            "Leave out one of the two.",
            fields={"environment": "not with another image"},
        )
    spec = replace(request.spec, image=image, runtime=runtime or request.spec.runtime)
    return replace(request, environment=meant.digest, spec=spec)
