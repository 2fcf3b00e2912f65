"""Engine factory: creates the configured engine. Engines are imported only here and by themselves."""

from datetime import tzinfo

from heliostat.config import Settings
from heliostat.engines.account_sync import AccountSync
from heliostat.engines.contract import ChecksRequests, Engine, Finding, HistoryReader
from heliostat.errors import Invalid
from heliostat.models import Node


def make_engine(settings: Settings) -> Engine:
    """The engine that the settings name, started."""
    if settings.server.engine == "local":
        from heliostat.engines.local.engine import LocalEngine

        return LocalEngine(settings)
    if settings.server.engine == "simulated":
        from heliostat.engines.simulated.clock import RealClock
        from heliostat.engines.simulated.cluster import parse_nodes
        from heliostat.engines.simulated.engine import SimulatedEngine

        return SimulatedEngine(
            parse_nodes(settings.server.simulated_nodes), RealClock(), speed=settings.server.simulated_speed
        )
    if settings.server.engine == "slurm":
        from heliostat.engines.slurm.engine import SlurmEngine

        return SlurmEngine(settings)
    raise Invalid(f"There is no engine {settings.server.engine!r}.", "Choose local, simulated or slurm.")


def examine_engine(settings: Settings) -> list[Finding]:
    """Check the requirements of the engine, for the doctor. The engine need not run."""
    if settings.server.engine == "slurm":
        from heliostat.engines.slurm.installation_checks import examine_slurm

        return [Finding(*found) for found in examine_slurm(settings)]
    from heliostat.engines.local.installation_checks import examine_local

    return list(examine_local(settings))


def examine_environments(settings: Settings) -> list[Finding]:
    """What prevents environments that all users share; on other engines than the local one they are private."""
    if settings.server.engine != "local":
        return []
    from heliostat.engines.local.installation_checks import examine_environments

    return list(examine_environments(settings))


def read_local_nodes(settings: Settings) -> list[Node]:
    """This machine as a node; the engine need not run. Empty if the engine's nodes are other machines."""
    if settings.server.engine == "slurm":
        return []
    from heliostat.engines.local.installation_checks import read_local_node

    return [read_local_node(settings)]


def make_slurm_request_checker(settings: Settings) -> ChecksRequests:
    """Checks requests against Slurm's current limits; the engine need not run."""
    from heliostat.engines.slurm.request_checker import make_request_checker

    return make_request_checker(settings)


def make_slurm_account_sync(settings: Settings) -> AccountSync:
    """Changes Slurm's accounts; the engine need not run."""
    from heliostat.engines.slurm.accounts.sync import make_account_sync

    return make_account_sync(settings.home)


def make_sacct_reader(zone: tzinfo, delimiter: str) -> HistoryReader:
    """Reads the output of `sacct`."""
    from heliostat.engines.slurm.sacct_history import SacctReader

    return SacctReader(zone, delimiter)
