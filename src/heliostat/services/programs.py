"""What only an engine that really runs programs can do: their files, their ports, and further commands."""

from heliostat.engines.contract import RunsPrograms
from heliostat.errors import Conflict
from heliostat.services.context import Context


def programs(context: Context) -> RunsPrograms:
    """Raises Conflict."""
    if not isinstance(context.engine, RunsPrograms):
        raise Conflict(
            f"Jobs of the engine {context.engine.name} only pretend to run: they have no output, files or ports.",
            "Use the local engine or Slurm for real ones.",
        )
    return context.engine


def attach_endpoints(context: Context) -> None:
    """Connections to jobs live on the event loop that runs now."""
    if isinstance(context.engine, RunsPrograms):
        context.engine.attach_endpoints()


async def detach_endpoints(context: Context) -> None:
    """Before that loop ends."""
    if isinstance(context.engine, RunsPrograms):
        await context.engine.detach_endpoints()
