"""Which jobs Slurm could never run, and why. Pure but for the list of this machine's Unix users."""

from collections.abc import Sequence

from heliostat.engines.environment import Person
from heliostat.engines.folders import Refused, person_of
from heliostat.engines.slurm.script import Paths, Site, sbatch_argv
from heliostat.engines.slurm.terms import Unfit
from heliostat.models import Attempt, Job, JobRequest, JobSpec, Node
from heliostat.scheduling.fitting import could_ever_run
from heliostat.services.impossible import why_impossible

_ANYBODY = Person("anybody", 0, 0, "/", "/bin/sh")
_ANYWHERE = Paths("/", None, "/", "/", "/", "/")
_SITE = Site("none", as_root=True)


def why_slurm_cannot(job: Job, nodes: Sequence[Node]) -> str | None:
    """None: nothing speaks against it. `nodes` are Slurm's; without any, only what the job says is looked at."""
    try:
        sbatch_argv(Attempt(job.attempt_id, job, ""), _ANYBODY, _ANYWHERE, _SITE)
        person_of(job.unix_user)
    except (Unfit, Refused) as error:
        return str(error)
    return _no_node(job, nodes) if nodes else None


def _no_node(job: Job, nodes: Sequence[Node]) -> str | None:
    wanted = job.resources
    types = sorted({device.type for node in nodes for device in node.devices})
    if wanted.gpus and wanted.gpu_type and wanted.gpu_type not in types:
        return f"Slurm has no GPUs of type {wanted.gpu_type!r}, but {', '.join(types) or 'none at all'}"
    if wanted.gpu_memory_mib is not None:
        return "Slurm does not know how much memory a GPU has; ask for a type instead: --gpu-type"
    if could_ever_run(nodes, wanted, job.placement):
        return None
    asked = JobRequest(
        JobSpec(),
        cpus=wanted.cpus,
        memory_mib=wanted.memory_mib,
        gpus=wanted.gpus,
        gpu_type=wanted.gpu_type,
        placement=job.placement,
    )
    return why_impossible(asked, wanted, nodes, 0).message
