"""The container of a job of Chronos: what it means here, and what is refused with the reason. Pure."""

from collections.abc import Callable
from typing import Any

Wrong = Callable[[str, str], Exception]

_KNOWN = {"type", "image", "network", "volumes", "forcePullImage", "parameters", "networkName", "networkInfos"}
_NETWORKS = {"HOST": "host", "BRIDGE": "private", "USER": "private", "NONE": "none"}
_INSTEAD = {"forcePullImage": ", and name the version in the image", "parameters": ", and use volumes and network"}


def container_of(container: object, wrong: Wrong) -> dict[str, Any]:
    """The fields of a job; none without a container."""
    if container is None:
        return {}
    if not isinstance(container, dict) or not isinstance(container.get("image"), str):
        raise wrong("container", "has a type and an image")
    for name in container:
        if name not in _KNOWN:
            raise wrong(f"container.{str(name)[:40]}", "is not known here")
    for name in ("forcePullImage", "parameters", "networkName", "networkInfos"):
        if container.get(name):
            raise wrong(f"container.{name}", "is not possible here; leave it out" + _INSTEAD.get(name, ""))
    if str(container.get("type", "DOCKER")).upper() not in ("DOCKER", "MESOS"):
        raise wrong("container.type", "is DOCKER or MESOS")
    network = str(container.get("network", "HOST")).upper()
    if network not in _NETWORKS:
        raise wrong("container.network", "is HOST, BRIDGE or NONE")
    volumes = container.get("volumes") or []
    if not isinstance(volumes, list):
        raise wrong("container.volumes", "must be a list")
    mounts = [_mount(one, wrong) for one in volumes]
    return {"image": container["image"], "network": _NETWORKS[network], "mounts": mounts}


def _mount(volume: object, wrong: Wrong) -> str:
    paths = [volume.get(name) for name in ("hostPath", "containerPath")] if isinstance(volume, dict) else []
    if not isinstance(volume, dict) or not all(isinstance(path, str) for path in paths):
        raise wrong(
            "container.volumes", "each has a hostPath and a containerPath: only folders of the node are there"
        )
    if unknown := sorted(str(name)[:40] for name in volume.keys() - {"hostPath", "containerPath", "mode"}):
        raise wrong(f"container.volumes.{unknown[0]}", "is not possible here: only folders of the node are there")
    mode = str(volume.get("mode", "RW")).upper()
    if mode not in ("RW", "RO"):
        raise wrong("container.volumes.mode", "is RW or RO")
    source, target = (str(path).rstrip("/") or "/" for path in paths)
    return f"{source}:{target}{':ro' if mode == 'RO' else ''}"
