"""Container policy: checks a job's container request against the admins' rules, at submission and at the start."""

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
    """The owner of a job, for the placeholders in mount rules."""

    user: str
    home: str | None  # home of the Unix user that the job runs as
    project: str


@dataclass(frozen=True, slots=True)
class ContainerPolicy:
    container_settings: ContainerSettings
    installation_folder: str  # must never be mounted

    def requires_container(self, project: str) -> bool:
        return self.container_settings.required or project in self.container_settings.required_for

    def mount_roots(self, owner: JobOwner) -> list[MountRoot]:
        names = {"user": owner.user, "project": owner.project}
        names = {name: value for name, value in names.items() if "/" not in value and value.strip(".")}
        if owner.home and owner.home != "/":
            names["home"] = owner.home
        return expand_mount_roots(self.container_settings.mount_paths, names)


def make_container_policy(settings: Settings) -> ContainerPolicy:
    return ContainerPolicy(settings.containers, str(settings.home.path))


def resolve_container_request(
    spec: JobSpec, owner: JobOwner, policy: ContainerPolicy, *, is_own: bool = False
) -> JobSpec:
    """The spec with defaults filled in and the full image name. `is_own`: the image was built here and is named by
    its content. Raises Invalid when a rule forbids it."""
    if not spec.uses_container:
        _check_plain(spec, owner, policy)
        return spec
    runtime = spec.runtime or policy.container_settings.default_runtime
    _check_runtime(runtime, spec, policy)
    image = _built_image(spec.image, runtime, policy) if is_own else _image(spec.image, runtime, policy)
    resolved = replace(spec, runtime=runtime, image=image, network=_network(spec, policy))
    resolve_mounts(resolved, owner, policy, is_own=is_own)
    return resolved


def resolve_mounts(
    spec: JobSpec, owner: JobOwner, policy: ContainerPolicy, *, is_own: bool = False
) -> tuple[Mount, ...]:
    """The effective mounts: links resolved, and the working directory included. Raises Invalid."""
    roots = policy.mount_roots(owner)
    mounts = tuple(_allowed(mount, roots, policy, "mounts") for mount in spec.mounts)
    targets = [mount.target for mount in spec.mounts]
    if len(set(targets)) < len(targets):
        raise Invalid(
            "Two mounts have the same target.", "Use a different target for each.", fields={"mounts": "the same"}
        )
    if spec.image is not None and is_image_file(spec.image) and not is_own:
        _allowed(Mount(spec.image, spec.image, read_only=True), roots, policy, "image")
    if spec.workdir is None or any(_is_below(spec.workdir, target) for target in targets):
        return mounts
    return (*mounts, _allowed(Mount(spec.workdir, spec.workdir), roots, policy, "workdir"))


def _check_plain(spec: JobSpec, owner: JobOwner, policy: ContainerPolicy) -> None:
    if policy.requires_container(owner.project):
        raise Invalid(
            f"Jobs of the project {owner.project} must run in a container here.",
            "Add --image NAME, or --isolate to use the node's own software.",
            fields={"runtime": "must not be process"},
        )
    if spec.runtime is not None and "process" not in policy.container_settings.runtimes:
        raise _runtime_not_allowed("process", policy)
    if spec.mounts or spec.network is not None:
        field_name = "mounts" if spec.mounts else "network"
        raise Invalid(
            f"Only a job in a container can have {'mounts' if spec.mounts else 'its own network'}.",
            f"Add --image NAME or --isolate, or remove the {field_name}.",
            fields={field_name: "needs image or runtime"},
        )


def _check_runtime(runtime: str, spec: JobSpec, policy: ContainerPolicy) -> None:
    if runtime not in policy.container_settings.runtimes or runtime not in RUNTIMES:
        raise _runtime_not_allowed(runtime, policy)
    takes_images = RUNTIMES[runtime].needs_image
    if takes_images and spec.image is None:
        raise Invalid(f"{runtime} needs an image.", "Add --image NAME.", fields={"image": "missing"})
    if not takes_images and spec.image is not None:
        raise Invalid(
            f"{runtime} runs the node's own software, not an image.",
            f"Remove the image, or choose --runtime {policy.container_settings.default_runtime}.",
            fields={"runtime": "does not support images"},
        )


def _runtime_not_allowed(runtime: str, policy: ContainerPolicy) -> Invalid:
    allowed = ", ".join(policy.container_settings.runtimes)
    return Invalid(
        f"The runtime {runtime[:60]!a} is not allowed here.",
        f"Choose one of: {allowed}.",
        fields={"runtime": f"must be one of {allowed}"},
    )


def _image(text: str | None, runtime: str, policy: ContainerPolicy) -> str | None:
    if text is None:
        return None
    if is_image_file(text):
        return _image_file(text, runtime, policy)
    try:
        image = parse_image(text)
    except ValueError as error:
        raise Invalid(f"{text[:100]!a} {error}.", "Example: python:3.11.", fields={"image": str(error)}) from None
    _check_image(image, policy)
    return str(image)


def _built_image(text: str | None, runtime: str, policy: ContainerPolicy) -> str | None:
    if text is None or runtime == "docker":
        raise Invalid(
            "docker cannot run an image that was built here.",
            "Remove the runtime, or push the image to a registry and use its name there.",
            fields={"runtime": "cannot run an image that was built here"},
        )
    if is_image_file(text) and runtime != "apptainer":
        raise Invalid(
            "This image was built by apptainer, and only apptainer can run it.",
            "Add --runtime apptainer.",
            fields={"runtime": "must be apptainer"},
        )
    check_registry(BUILT_IMAGE if is_image_file(text) else parse_image(text), policy)
    if policy.container_settings.allowed_digests:
        raise _digest_not_allowed("Images that were built here are not allowed.", "Push it to a registry, and ask")
    return text


def _check_image(image: ImageName, policy: ContainerPolicy) -> None:
    check_registry(image, policy)
    allowed = policy.container_settings.allowed_digests
    if (policy.container_settings.require_digest or allowed) and image.digest is None:
        raise Invalid(
            "Images must be named by their digest here.",
            "Write NAME@sha256:…; podman image inspect --format '{{.Digest}}' NAME prints the digest.",
            fields={"image": "needs @sha256:…"},
        )
    if allowed and image.digest not in allowed:
        raise _digest_not_allowed("This image is not allowed here.", "Ask")


def _digest_not_allowed(message: str, step: str) -> Invalid:
    return Invalid(message, f"{step} an admin to add its digest to allowed_digests.", fields={"image": message})


def check_registry(image: ImageName, policy: ContainerPolicy) -> None:
    """Raises Invalid for a registry that the admins do not allow."""
    registries = policy.container_settings.allowed_registries
    if registries and not any(f"{image.repository}/".startswith(f"{name.rstrip('/')}/") for name in registries):
        allowed = ", ".join(registries)
        raise Invalid(
            f"Images from {image.repository} are not allowed here.",
            f"Allowed registries: {allowed}.",
            fields={"image": f"must be from {allowed}"},
        )


def _image_file(path: str, runtime: str, policy: ContainerPolicy) -> str:
    if runtime != "apptainer":
        raise Invalid(
            "Only apptainer can run an image file.", "Add --runtime apptainer.", fields={"image": "is a file"}
        )
    containers = policy.container_settings
    if containers.allowed_registries or containers.require_digest or containers.allowed_digests:
        raise Invalid(
            "Image files are not allowed here.", "Use an image from a registry.", fields={"image": "a file"}
        )
    return path


def _network(spec: JobSpec, policy: ContainerPolicy) -> str:
    usable = [name for name in policy.container_settings.networks if name in CONTAINER_NETWORKS]
    network = spec.network or (usable[0] if usable else "none")
    if network in usable or network == "none":
        return network
    allowed = ", ".join(dict.fromkeys([*usable, "none"]))
    raise Invalid(
        f"The network {network[:60]!a} is not allowed here.",
        f"Choose one of: {allowed}.",
        fields={"network": f"must be one of {allowed}"},
    )


def _allowed(mount: Mount, roots: Sequence[MountRoot], policy: ContainerPolicy, field_name: str) -> Mount:
    try:
        return resolve_mount(mount, roots, policy.installation_folder)
    except MountForbidden as error:
        places = ", ".join(f"{root.path}{' (read-only)' if root.read_only else ''}" for root in roots)
        hint = f"You may mount paths in: {places}." if places else "Mounts are not allowed here; ask an admin."
        if field_name == "workdir":
            hint = f"Choose another working directory (--workdir), or upload this one: --upload FOLDER. {hint}"
        raise Invalid(f"{error}.", hint, fields={field_name: str(error)}) from None


def _is_below(path: str, target: str) -> bool:
    return path == target or path.startswith(f"{target.rstrip('/')}/")
