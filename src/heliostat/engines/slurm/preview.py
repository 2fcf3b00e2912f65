"""What Slurm, as it is now, could never run: asked once, without an engine that runs on it."""

import contextlib
from dataclasses import dataclass

from heliostat.config import Settings
from heliostat.engines.slurm.associations import SlurmAccounts
from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.contained import check_container
from heliostat.engines.slurm.partitions import Picture
from heliostat.engines.slurm.programs import SlurmRefused
from heliostat.engines.slurm.requests import check_class, check_request
from heliostat.engines.slurm.reservations import reservation_option
from heliostat.engines.slurm.terms import Terms, Unfit, terms_of
from heliostat.errors import Conflict, EngineUnavailable, Invalid
from heliostat.models import Job


@dataclass(frozen=True, slots=True)
class Preview:
    """Fulfils `ChecksRequests`."""

    picture: Picture
    terms: Terms
    accounts: SlurmAccounts

    def check(self, job: Job, data_class: int) -> None:
        check_request(job, data_class, self.picture, self.terms)
        check_class(job, self.terms, self.accounts)
        check_container(job)
        known = self.picture.reservations
        if job.placement.reservation is None or known is None:
            return
        try:
            reservation_option(job.placement.reservation, [one.name for one in known])
        except Unfit as error:
            raise Invalid(str(error), "`scontrol show reservation` shows what Slurm has.") from error


def preview(settings: Settings) -> Preview:
    """What cannot be found out now is left to Slurm."""
    slurm = Commands.of(settings.home)
    accounts, picture = SlurmAccounts(slurm), Picture()
    try:
        accounts.look()
    except (EngineUnavailable, SlurmRefused, Conflict):
        accounts = SlurmAccounts(slurm)  # which refuses nothing
    with contextlib.suppress(EngineUnavailable, SlurmRefused):
        picture = slurm.picture()
    return Preview(picture, terms_of(settings).seeing(picture.gpu_types), accounts)
