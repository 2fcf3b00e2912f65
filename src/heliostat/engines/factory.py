"""Makes the engine that is asked for. Nothing else outside of an engine imports it."""

from datetime import tzinfo

from heliostat.config import Settings
from heliostat.engines.contract import ChecksRequests, Engine, Finding, HistoryReader
from heliostat.errors import Invalid
from heliostat.models import Node


def make_engine(settings: Settings) -> Engine:
    """The one that the settings name, running."""
    if settings.server.engine == "local":
        from heliostat.engines.local.engine import LocalEngine

        return LocalEngine(settings)
    if settings.server.engine == "simulated":
        from heliostat.engines.simulated.clock import ScaledClock
        from heliostat.engines.simulated.cluster import parse_nodes
        from heliostat.engines.simulated.engine import SimulatedEngine

        return SimulatedEngine(
            parse_nodes(settings.server.simulated_nodes), ScaledClock(settings.server.simulated_speed)
        )
    if settings.server.engine == "slurm":
        from heliostat.engines.slurm.engine import SlurmEngine

        return SlurmEngine(settings)
    raise Invalid(f"There is no engine {settings.server.engine!r}.", "Engines are: local, simulated, slurm.")


def examine_engine(settings: Settings) -> list[Finding]:
    """What is wrong with what the engine needs, and what to do about it; the engine need not run."""
    if settings.server.engine == "slurm":
        from heliostat.engines.slurm.installation_checks import examine_slurm

        return [Finding(*found) for found in examine_slurm(settings)]
    from heliostat.engines.local.installation_checks import examine_local

    return list(examine_local(settings))


def read_local_nodes(settings: Settings) -> list[Node]:
    """This machine as the engine would see it; the engine need not run. None where its nodes are others."""
    if settings.server.engine == "slurm":
        return []
    from heliostat.engines.local.installation_checks import read_local_node

    return [read_local_node(settings)]


def make_slurm_request_checker(settings: Settings) -> ChecksRequests:
    """What Slurm, as it is now, could never run; no engine need run on it."""
    from heliostat.engines.slurm.request_checker import make_request_checker

    return make_request_checker(settings)


def make_sacct_reader(zone: tzinfo, delimiter: str) -> HistoryReader:
    """Of what `sacct` prints."""
    from heliostat.engines.slurm.sacct_history import SacctReader

    return SacctReader(zone, delimiter)
