"""Checks of requests against the current Slurm cluster without a running engine: `SlurmRequestChecker`."""

import contextlib
from dataclasses import dataclass

from heliostat.config import Settings
from heliostat.engines.slurm.accounts.sacctmgr import SlurmAccounts
from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.engines.slurm.cluster_state import (
    ClusterSnapshot,
    check_priority_class,
    check_request,
    read_cluster_snapshot,
)
from heliostat.engines.slurm.containers import check_container
from heliostat.engines.slurm.mapping import NameMapping, UnsupportedRequest, make_name_mapping
from heliostat.engines.slurm.reservations import reservation_option
from heliostat.errors import Conflict, EngineUnavailable, Invalid
from heliostat.models import Job


@dataclass(frozen=True, slots=True)
class SlurmRequestChecker:
    """Implements `ChecksRequests`."""

    snapshot: ClusterSnapshot
    name_mapping: NameMapping
    accounts: SlurmAccounts

    def check_request(self, job: Job, data_class: int) -> None:
        check_request(job, data_class, self.snapshot, self.name_mapping)
        check_priority_class(job, self.name_mapping, self.accounts)
        check_container(job)
        reservations = self.snapshot.reservations
        if job.placement.reservation is None or reservations is None:
            return
        try:
            reservation_option(job.placement.reservation, [reservation.name for reservation in reservations])
        except UnsupportedRequest as error:
            raise Invalid(str(error), "`scontrol show reservation` lists Slurm's reservations.") from error


def make_request_checker(settings: Settings) -> SlurmRequestChecker:
    """Checks whose data cannot be read now are skipped."""
    slurm = SlurmClient.for_home(settings.home)
    accounts, snapshot = SlurmAccounts(slurm), ClusterSnapshot()
    try:
        accounts.refresh()
    except (EngineUnavailable, SlurmRefused, Conflict):
        accounts = SlurmAccounts(slurm)  # empty: refuses nothing
    with contextlib.suppress(EngineUnavailable, SlurmRefused):
        snapshot = read_cluster_snapshot(slurm)
    return SlurmRequestChecker(
        snapshot, make_name_mapping(settings.slurm).with_observed_gpu_types(snapshot.gpu_types), accounts
    )
