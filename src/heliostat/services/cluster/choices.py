"""GPU types, projects and time limits that a user can choose for a job."""

from dataclasses import dataclass

from heliostat.models import Caller
from heliostat.services.accounts.projects import list_projects
from heliostat.services.accounts.required_accounts import find_default_project
from heliostat.services.context import Context


@dataclass(frozen=True, slots=True)
class GpuType:
    name: str
    count: int  # in the whole cluster, free or not
    memory_mib: int  # of the smallest GPU of this type


@dataclass(frozen=True, slots=True)
class JobChoices:
    gpu_types: tuple[GpuType, ...]
    projects: tuple[str, ...]
    default_project: str | None  # None: the user must name one
    default_time_limit_seconds: int | None  # None: no limit
    max_time_limit_seconds: int


def job_choices_for(context: Context, caller: Caller) -> JobChoices:
    """The GPU types of the cluster, and the open projects of the caller."""
    now = context.now()
    names = tuple(project.name for project in list_projects(context, caller) if not project.is_closed(now))
    return JobChoices(
        gpu_types=_gpu_types(context),
        projects=names,
        default_project=find_default_project(context, caller.user),
        default_time_limit_seconds=context.settings.queue.default_time_limit_seconds,
        max_time_limit_seconds=context.settings.queue.max_time_limit_seconds,
    )


def _gpu_types(context: Context) -> tuple[GpuType, ...]:
    sizes: dict[str, list[int]] = {}
    for node in context.node_inventory.nodes():
        for device in node.devices:
            sizes.setdefault(device.type, []).append(device.memory_mib)
    return tuple(GpuType(name, len(memory), min(memory)) for name, memory in sorted(sizes.items()))
