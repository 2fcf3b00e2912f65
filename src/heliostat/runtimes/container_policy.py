"""What the admins allow, held against what a job asks for: before it is taken, and again before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from heliostat.config import ContainerSettings, Settings
from heliostat.errors import Invalid
from heliostat.models import JobSpec, Mount
from heliostat.models.jobs import CONTAINER_NETWORKS
from heliostat.runtimes.all_runtimes import RUNTIMES
from heliostat.runtimes.image_names import BUILT_IMAGE, ImageName, is_image_file, parse_image
from heliostat.runtimes.mount_policy import MountForbidden, MountRoot, expand_mount_roots, resolve_mount


@dataclass(frozen=True, slots=True)
class JobOwner:
    """Whose job it is."""

    user: str
    home: str | None  # of the Unix user it runs as
    project: str


@dataclass(frozen=True, slots=True)
class ContainerPolicy:
    container_settings: ContainerSettings
    installation_folder: str  # the installation, which nobody may mount

    def requires_container(self, project: str) -> bool:
        return self.container_settings.required or project in self.container_settings.required_for

    def mount_roots(self, asker: JobOwner) -> list[MountRoot]:
        names = {"user": asker.user, "project": asker.project}
        names = {name: value for name, value in names.items() if "/" not in value and value.strip(".")}
        if asker.home and asker.home != "/":
            names["home"] = asker.home
        return expand_mount_roots(self.container_settings.mount_paths, names)


def make_container_policy(settings: Settings) -> ContainerPolicy:
    return ContainerPolicy(settings.containers, str(settings.home.path))


def resolve_container_request(
    spec: JobSpec, asker: JobOwner, rules: ContainerPolicy, *, is_own: bool = False
) -> JobSpec:
    """With everything it left open decided, and names in full; `is_own`: its image was built here, and is named by
    what is in it. Raises Invalid when a rule forbids it."""
    if not spec.uses_container:
        _check_plain(spec, asker, rules)
        return spec
    runtime = spec.runtime or rules.container_settings.default_runtime
    _check_runtime(runtime, spec, rules)
    image = _own_image(spec.image, runtime, rules) if is_own else _image(spec.image, runtime, rules)
    settled = replace(spec, runtime=runtime, image=image, network=_network(spec, rules))
    resolve_mounts(settled, asker, rules, is_own=is_own)
    return settled


def resolve_mounts(
    spec: JobSpec, asker: JobOwner, rules: ContainerPolicy, *, is_own: bool = False
) -> tuple[Mount, ...]:
    """What is really mounted: links followed, and the working directory with it. Raises Invalid."""
    roots = rules.mount_roots(asker)
    mounts = tuple(_allowed(mount, roots, rules, "mounts") for mount in spec.mounts)
    targets = [mount.target for mount in spec.mounts]
    if len(set(targets)) < len(targets):
        raise Invalid(
            "Two mounts have the same place inside.", "Give each its own.", fields={"mounts": "the same"}
        )
    if spec.image is not None and is_image_file(spec.image) and not is_own:
        _allowed(Mount(spec.image, spec.image, read_only=True), roots, rules, "image")
    if spec.workdir is None or any(_is_at(spec.workdir, target) for target in targets):
        return mounts
    return (*mounts, _allowed(Mount(spec.workdir, spec.workdir), roots, rules, "workdir"))


def _check_plain(spec: JobSpec, asker: JobOwner, rules: ContainerPolicy) -> None:
    if rules.requires_container(asker.project):
        raise Invalid(
            f"Jobs of {asker.project} must run in a container here.",
            "Add --image NAME, or --isolate to use the node's own software.",
            fields={"runtime": "must not be process"},
        )
    if spec.runtime is not None and "process" not in rules.container_settings.runtimes:
        raise _no_runtime("process", rules)
    if spec.mounts or spec.network is not None:
        field_name = "mounts" if spec.mounts else "network"
        raise Invalid(
            f"Only a job in a container has {'mounts' if spec.mounts else 'a network'} of its own.",
            "Add --image NAME or --isolate, or leave it out.",
            fields={field_name: "needs image or runtime"},
        )


def _check_runtime(runtime: str, spec: JobSpec, rules: ContainerPolicy) -> None:
    if runtime not in rules.container_settings.runtimes or runtime not in RUNTIMES:
        raise _no_runtime(runtime, rules)
    takes_images = RUNTIMES[runtime].needs_image
    if takes_images and spec.image is None:
        raise Invalid(f"{runtime} needs an image.", "Add --image NAME.", fields={"image": "missing"})
    if not takes_images and spec.image is not None:
        raise Invalid(
            f"{runtime} runs the node's own software, not an image.",
            f"Leave the image out, or choose --runtime {rules.container_settings.default_runtime}.",
            fields={"runtime": "takes no image"},
        )


def _no_runtime(runtime: str, rules: ContainerPolicy) -> Invalid:
    known = ", ".join(rules.container_settings.runtimes)
    return Invalid(
        f"The runtime {runtime[:60]!a} is not allowed here.",
        f"Choose one of: {known}.",
        fields={"runtime": f"must be one of {known}"},
    )


def _image(text: str | None, runtime: str, rules: ContainerPolicy) -> str | None:
    if text is None:
        return None
    if is_image_file(text):
        return _image_file(text, runtime, rules)
    try:
        image = parse_image(text)
    except ValueError as error:
        raise Invalid(f"{text[:100]!a} {error}.", "Such as python:3.11.", fields={"image": str(error)}) from None
    _check_image(image, rules)
    return str(image)


def _own_image(text: str | None, runtime: str, rules: ContainerPolicy) -> str | None:
    if text is None or runtime == "docker":
        raise Invalid(
            "docker cannot run an image that was built here.",
            "Leave the runtime out, or push the image to a registry and name it there.",
            fields={"runtime": "cannot run it"},
        )
    if is_image_file(text) and runtime != "apptainer":
        raise Invalid(
            "It was built by apptainer, and only apptainer runs it.",
            "Add --runtime apptainer.",
            fields={"runtime": "must be apptainer"},
        )
    check_registry(BUILT_IMAGE if is_image_file(text) else parse_image(text), rules)
    if rules.container_settings.allowed_digests:
        raise _unknown("An image that was built here is none of those", "Push it to a registry, and ask")
    return text


def _check_image(image: ImageName, rules: ContainerPolicy) -> None:
    check_registry(image, rules)
    known = rules.container_settings.allowed_digests
    if (rules.container_settings.require_digest or known) and image.digest is None:
        raise Invalid(
            "Images must be named by their digest here.",
            "Write NAME@sha256:…; podman image inspect --format '{{.Digest}}' NAME tells it.",
            fields={"image": "needs @sha256:…"},
        )
    if known and image.digest not in known:
        raise _unknown("This image is none of those", "Ask")


def _unknown(what: str, how: str) -> Invalid:
    message = f"{what} that may run here."
    return Invalid(message, f"{how} an admin to add its digest to allowed_digests.", fields={"image": message})


def check_registry(image: ImageName, rules: ContainerPolicy) -> None:
    """Raises Invalid for one the admins do not allow."""
    registries = rules.container_settings.allowed_registries
    if registries and not any(f"{image.repository}/".startswith(f"{one.rstrip('/')}/") for one in registries):
        known = ", ".join(registries)
        raise Invalid(
            f"Images of {image.repository} are not allowed here.",
            f"Allowed are those of: {known}.",
            fields={"image": f"must be of {known}"},
        )


def _image_file(path: str, runtime: str, rules: ContainerPolicy) -> str:
    if runtime != "apptainer":
        raise Invalid(
            "Only apptainer runs an image from a file.", "Add --runtime apptainer.", fields={"image": "is a file"}
        )
    containers = rules.container_settings
    if containers.allowed_registries or containers.require_digest or containers.allowed_digests:
        raise Invalid(
            "Images from files are not allowed here.", "Name one in a registry.", fields={"image": "a file"}
        )
    return path


def _network(spec: JobSpec, rules: ContainerPolicy) -> str:
    usable = [name for name in rules.container_settings.networks if name in CONTAINER_NETWORKS]
    wanted = spec.network or (usable[0] if usable else "none")
    if wanted in usable or wanted == "none":
        return wanted
    known = ", ".join(dict.fromkeys([*usable, "none"]))
    raise Invalid(
        f"The network {wanted[:60]!a} is not allowed here.",
        f"Choose one of: {known}.",
        fields={"network": f"must be one of {known}"},
    )


def _allowed(mount: Mount, roots: Sequence[MountRoot], rules: ContainerPolicy, field_name: str) -> Mount:
    try:
        return resolve_mount(mount, roots, rules.installation_folder)
    except MountForbidden as error:
        places = ", ".join(f"{root.path}{' (read-only)' if root.read_only else ''}" for root in roots)
        hint = f"You may mount what is in: {places}." if places else "Nothing may be mounted here; ask an admin."
        if field_name == "workdir":
            hint = f"Work in a folder that may be (--workdir), or send this one along: --upload FOLDER. {hint}"
        raise Invalid(f"{error}.", hint, fields={field_name: str(error)}) from None


def _is_at(path: str, target: str) -> bool:
    return path == target or path.startswith(f"{target.rstrip('/')}/")
