"""Which way to Slurm the settings choose."""

from pathlib import Path

from heliostat.config import Settings
from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.rest import RestCommands
from heliostat.engines.slurm.rest_http import RestApi
from heliostat.engines.slurm.rest_token import TokenFile


def way_to_slurm(settings: Settings) -> Commands:
    """Its tools, or slurmrestd where `slurm_api` names one."""
    lock = settings.home.attempts / "submitting.lock"
    if settings.slurm_api is None:
        return Commands(lock)
    return RestCommands(lock, api=RestApi(settings.slurm_api, token_file(settings), settings.slurm_api_user))


def token_file(settings: Settings) -> TokenFile:
    """`slurm.token` beside cluster.toml, unless another is named."""
    return TokenFile(Path(settings.slurm_token_file or settings.home.path / "slurm.token"))
