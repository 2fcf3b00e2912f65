"""Images built by users: build, list, show, push and remove. Each user has their own images."""

import contextlib
import os
import re
import secrets
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
from heliostat.services.accounts.required_accounts import require_unix_user_and_project
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
from heliostat.store import accounts, job_writes
from heliostat.store import environments as stored_environments
from heliostat.store import images as stored
from heliostat.store.database import Store, Transaction
from heliostat.store.jobs import get_jobs
from heliostat.untrusted_folders import remove_folder

_MAX_USERNAME_LENGTH, _MAX_PASSWORD_LENGTH = 200, 20_000

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LOGIN_SECONDS = 3600.0  # until a login without a stored push job counts as stale


@dataclass(frozen=True, slots=True)
class ImageBuildRequest:
    """What to build: a Containerfile, a definition file, or packages on top of a base image."""

    name: str
    containerfile: str | None = None
    definition: str | None = None
    packages: EnvironmentSpec | None = None
    base: str | None = None  # for the packages
    upload: str | None = None  # the build context


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    username: str
    password: str


@dataclass(frozen=True, slots=True)
class ImageView:
    """An image with its names, state and pushes."""

    environment_view: EnvironmentView
    names: tuple[str, ...]  # empty: its name refers to a newer image
    pushes: tuple[ImagePush, ...] = ()

    @property
    def digest(self) -> str:
        return self.environment_view.environment.digest

    @property
    def built_as(self) -> str:
        return dict(self.environment_view.environment.spec.files)[NAME_ENTRY]

    @property
    def image_digest(self) -> str | None:
        """The digest of the container image; None: not built."""
        return (self.environment_view.environment.lock or "").strip() or None


def build_image(
    context: Context, caller: Caller, build_request: ImageBuildRequest, project: str | None = None
) -> ImageView:
    """An existing image with the same content, or a new build in the queue; the name then refers to it."""
    unix_user, resolved_project = require_unix_user_and_project(context, caller.user, project)
    name, user = require_image_name(build_request.name), caller.user.name
    check_registry(BUILT_IMAGE, make_container_policy(context.settings))
    limit = context.settings.queue.max_jobs_per_user
    if context.controller.count_unfinished_jobs(user) >= limit:
        raise Conflict(f"You have {limit} unfinished jobs.", "Wait until some have ended.", code="queue_full")
    environment_request = prepare_environment_request(
        context, caller, _spec_of(context, user, name, build_request), (unix_user, resolved_project)
    )

    def change(tx: Transaction) -> None:
        provide_environment(context, tx, environment_request)
        stored.set_image_name(tx, user, name, environment_request.environment.digest, context.now())

    context.store.write(change)
    return show_image(context, caller, environment_request.environment.digest)


def list_images(context: Context, caller: Caller, *, all_users: bool = False) -> list[ImageView]:
    """The caller's own, most recently used first; with `all_users`, for admins, all."""
    view = environments.list_environments(context, caller, all_users=all_users, images=True)
    with context.store.read() as conn:
        names = stored.list_image_names(conn, [each.environment.digest for each in view])
    return [ImageView(each, tuple(names.get(each.environment.digest, ()))) for each in view]


def show_image(context: Context, caller: Caller, name: str) -> ImageView:
    """By its name, its digest, or a prefix of the digest; with its pushes."""
    view = environments.show_environment(context, caller, resolve_image_digest(context, caller, name))
    digest = view.environment.digest
    with context.store.read() as conn:
        names, pushes = (
            stored.list_image_names(conn, [digest]).get(digest, []),
            stored.list_image_pushes(conn, digest),
        )
    if any(push.state is JobState.COMPLETED and push.pushed_digest is None for push in pushes):
        record_pushed_digests(context.store, context.engine)  # otherwise the controller does so a moment later
        with context.store.read() as conn:
            pushes = stored.list_image_pushes(conn, digest)
    return ImageView(view, tuple(names), tuple(pushes))


def resolve_image_digest(context: Context, caller: Caller, name: str) -> str:
    """The digest of its environment. Raises NotFound."""
    if entries := find_image_by_name(context, caller.user.name, name):
        return entries.digest
    prefix = name.removeprefix("@")
    if len(prefix) >= MIN_DIGEST_PREFIX and not set(prefix) - set("0123456789abcdef"):
        each = require_environment(context, caller, prefix).environment
        if each.spec.kind in IMAGE_ENVIRONMENT_KINDS:
            return each.digest
    raise NotFound(f"You have no image {name[:80]!a}.", "`helio image list` lists yours.")


def remove_image(context: Context, caller: Caller, name: str) -> bool:
    """Whether it was deleted. Pushed images stay in their registry."""
    return environments.remove_environment(context, caller, resolve_image_digest(context, caller, name))


def push_image(
    context: Context, caller: Caller, name: str, target: str, login: RegistryLogin | None = None
) -> ImagePush:
    """Submit a job that pushes the image to a registry. The login is used once and deleted when the job starts."""
    image = show_image(context, caller, name)
    _check_pushable(image, caller)
    address = _target(context, target)
    _check_login(login)
    unix_user, project = require_unix_user_and_project(context, caller.user, None)
    login_folder = (
        None if login is None else _store_login(context, unix_user, parse_image(address).registry, login)
    )
    owner = (caller.user.name, unix_user, project)
    draft = draft_push_job(context, owner, (image.built_as, image.digest), address, login_folder)

    def change(tx: Transaction) -> ImagePush:
        now = context.now()
        job = replace(draft, id=tx.ids.allocate("jobs")[0], submitted_at=now)
        push = ImagePush(job.id, image.digest, address, now, state=job.state)
        job_writes.add_jobs(tx, [job])
        stored.add_image_push(tx, push)
        accounts.add_audit_entry(tx, caller, "image.push", f"image {image.digest[:12]}", {"target": address}, now)
        return push

    return context.store.write(change)


def require_image_name(text: str) -> str:
    try:
        return parse_image_name(text)
    except ValueError as error:
        raise Invalid(
            f"{text[:100]!a} {error}.", "Write a name such as torch:2.", fields={"name": str(error)}
        ) from None


def _spec_of(context: Context, user: str, name: str, build_request: ImageBuildRequest) -> EnvironmentSpec:
    """The spec, which determines the digest. Raises Invalid."""
    rules = make_container_policy(context.settings)
    if build_request.upload is not None and context.uploads.find_tree(user, build_request.upload) is None:
        hint = "Upload it again: helio image build does."
        raise Invalid("The build context has not been uploaded.", hint, fields={"upload": "does not exist"})
    folder = () if build_request.upload is None else ((UPLOAD_ENTRY, build_request.upload),)
    entries = ((NAME_ENTRY, name), *folder)
    if build_request.definition is not None:
        return EnvironmentSpec(
            "definition",
            ((DEFINITION_ENTRY, validate_apptainer_definition(build_request.definition, rules).text), *entries),
        )
    if build_request.packages is None:
        resolved = validate_containerfile(build_request.containerfile or "", rules)
        return EnvironmentSpec("image", ((CONTAINERFILE_ENTRY, resolved.text), *entries))
    packages = validate_environment_spec(build_request.packages, trusted_package_urls(context))
    resolved = generate_containerfile(packages, build_request.base or "", rules)
    return EnvironmentSpec("image", ((CONTAINERFILE_ENTRY, resolved.text), *packages.files, *entries))


def _check_pushable(image: ImageView, caller: Caller) -> None:
    each = image.environment_view.environment
    if each.owner != caller.user.name:
        raise NotFound("This image belongs to another user.", f"Only {each.created_by} can push it.")
    if each.spec.kind != "image":
        raise Conflict(
            "An image of apptainer is a file and cannot be pushed.", "Build the image from a Containerfile."
        )
    if image.environment_view.state is not EnvironmentState.READY:
        reason = f": {image.environment_view.reason}" if image.environment_view.reason else ""
        raise Conflict(
            f"The image is {image.environment_view.state.value}{reason}.",
            f"See `helio image show {image.built_as}`.",
        )


def _target(context: Context, text: str) -> str:
    try:
        image = parse_image(text)
    except ValueError as error:
        raise _wrong_target(f"{text[:100]!a} {error}.") from None
    if not text.startswith(f"{image.registry}/"):
        raise _wrong_target(f"{text[:100]!a} does not contain a registry.")
    if image.digest is not None:
        raise _wrong_target("The target of a push cannot be a digest.")
    check_registry(image, make_container_policy(context.settings))
    return str(image)


def _wrong_target(message: str) -> Invalid:
    return Invalid(
        message, "Write REGISTRY/NAME:TAG: registry.example.org/lab/torch:2.", fields={"target": message}
    )


def _check_login(login: RegistryLogin | None) -> None:
    if login is None:
        return
    if not login.username or len(login.username) > _MAX_USERNAME_LENGTH or not _is_plain(login.username):
        hint = "Enter your user name at the registry."
        raise Invalid("The user name of the registry is not valid.", hint, fields={"username": "not valid"})
    if (
        not login.password
        or len(login.password) > _MAX_PASSWORD_LENGTH
        or not _is_plain(login.password.replace(":", ""))
    ):
        hint = "Enter your password or token at the registry."
        raise Invalid(
            "The password of the registry is not valid.", hint, fields={"password": "missing, or too long"}
        )


def _is_plain(text: str) -> bool:
    return text.isprintable() and ":" not in text


def _store_login(context: Context, unix_user: str, registry: str, login: RegistryLogin) -> str:
    """A folder that only the user's push job can read. The job empties it at its start."""
    home = context.settings.home
    try:
        account = require_run_as_user(unix_user)
        home.registry_logins.mkdir(exist_ok=True)
        home.registry_logins.chmod(0o711)
        folder = home.registry_logins / secrets.token_hex(16)
        folder.mkdir(0o700)
        _write(
            str(folder / "login"),
            format_registry_login(registry, login.username, login.password),
            (account.uid, account.gid),
        )
        os.chown(folder, account.uid, account.gid)
    except (AttemptRefused, OSError) as error:
        raise HeliostatError(
            f"The login for the push cannot be stored: {error}.", "See `helio doctor`."
        ) from error
    return str(folder)


def _write(path: str, text: str, owner: Sequence[int]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchown(descriptor, owner[0], owner[1])


def record_pushed_digests(store: Store, engine: Engine) -> None:
    """Store the registry digests of ended pushes. After a crash, the next call does it."""
    with store.read() as conn:
        unread = stored.list_pushes_without_digest(conn)
    for push in unread:
        text = read_job_text(engine, push.job_id, "work/digest", 200)
        if match := _DIGEST.match(text):
            store.write(partial(stored.set_pushed_digest, job_id=push.job_id, pushed_digest=match[0]))


def remove_stale_logins(store: Store, home: Home, now: datetime) -> None:
    """Delete logins whose push has ended or was never stored. A push deletes its own login when it starts."""
    with contextlib.suppress(FileNotFoundError), store.read() as conn:
        entries = list(os.scandir(home.registry_logins))
        if not entries:
            return
        jobs = get_jobs(conn, {push.job_id for push in stored.list_unfinished_pushes(conn)}).values()
        scripts = [job.spec.script or "" for job in jobs]
        for entry in entries:
            is_old = now.timestamp() - entry.stat(follow_symlinks=False).st_mtime > _LOGIN_SECONDS
            if is_old and not any(entry.name in script for script in scripts):
                with contextlib.suppress(OSError):
                    remove_folder(entry.path)


def resolve_image_names(context: Context, caller: Caller, requests: Sequence[JobRequest]) -> list[JobRequest]:
    """The requests with the images that their names refer to now; later builds do not change them.

    Each digest and name is looked up once for all requests. Can be repeated.
    """
    digests = dict.fromkeys(each.environment for each in requests if isinstance(each.environment, str))
    names = {each.spec.image for each in requests if each.environment is None and each.spec.image is not None}
    by_digest = {digest: _of_digest(context, caller, digest) for digest in digests}
    by_name = _find_all_named(context, caller.user.name, names)
    resolved: list[JobRequest] = []
    for request in requests:
        if isinstance(request.environment, str):
            resolved.append(_with_image(context, request, by_digest[request.environment]))
        elif request.environment is None and request.spec.image in by_name:
            resolved.append(_with_image(context, request, by_name[request.spec.image]))
        else:
            resolved.append(request)
    return resolved


def find_image_by_name(context: Context, user: str, text: str) -> Environment | None:
    """The user's own image with that name; None: it does not exist, so the name refers to a registry."""
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
        by_digest = {digest: stored_environments.find_environment(conn, digest) for digest in digests.values()}
    by_text = {text: by_digest.get(digests.get(name, "")) for text, name in names.items()}
    return {text: image.environment for text, image in by_text.items() if image is not None}


def _of_digest(context: Context, caller: Caller, digest: str) -> Environment:
    each = require_environment(context, caller, digest).environment
    if each.spec.kind in IMAGE_ENVIRONMENT_KINDS and each.owner != caller.user.name:
        raise NotFound(
            "This image belongs to another user.", f"Ask {each.created_by} to push it to a registry for you."
        )
    return each


def _with_image(context: Context, request: JobRequest, environment: Environment) -> JobRequest:
    if environment.spec.kind not in IMAGE_ENVIRONMENT_KINDS:
        return request
    image, runtime = image_and_runtime_of(context, environment.spec, environment.digest)
    if request.environment is not None and request.spec.image not in (None, image):
        raise Invalid(
            "An image contains its own software and cannot be combined with an environment.",
            "Omit one of the two.",
            fields={"environment": "not allowed with another image"},
        )
    spec = replace(request.spec, image=image, runtime=runtime or request.spec.runtime)
    return replace(request, environment=environment.digest, spec=spec)
