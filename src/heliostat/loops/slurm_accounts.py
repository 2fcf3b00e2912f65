"""Applies changes of users, projects, shares and quotas to Slurm's accounts (`slurm.apply_accounts`)."""

from heliostat.controller.background_loop import BackgroundLoop
from heliostat.engines.account_sync import HeliostatAccounts
from heliostat.server_log import get_logger
from heliostat.services.accounts.slurm_sync import apply_slurm_accounts_automatically, heliostat_accounts
from heliostat.services.context import Context

log = get_logger()
_CHECK_SECONDS = 5.0
_RETRY_SECONDS = 60.0


class SlurmAccountUpdater:
    """Reads only the database until something has changed there. What Slurm refuses is tried again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._applied: HeliostatAccounts | None = None
        self._loop = BackgroundLoop(
            "slurm-accounts", self.run_once, _RETRY_SECONDS, failure="slurm_accounts_not_applied"
        )
        self.start, self.close = self._loop.start, self._loop.close

    def run_once(self) -> float:
        """Seconds until the next run; after an error it is `_RETRY_SECONDS`."""
        ours = heliostat_accounts(self._context)
        if ours != self._applied:
            result = apply_slurm_accounts_automatically(self._context)
            self._applied = ours
            if result.applied_steps:
                log.info("slurm_accounts_applied", steps=[step.sentence for step in result.applied_steps])
        return _CHECK_SECONDS
