"""The client's verbs on Slurm's accounts."""

from heliostat.client.shapes import SlurmPlan
from heliostat.client.transport import Transport

_MANY_STEPS_SECONDS = 900.0


class SlurmVerbs:
    _transport: Transport

    def slurm_plan(self) -> SlurmPlan:
        """What would be changed in Slurm to have its accounts as ours are. Admins only."""
        plan: SlurmPlan = self._transport.call("GET", "/slurm/plan", timeout_seconds=_MANY_STEPS_SECONDS)
        return plan

    def slurm_apply(self) -> SlurmPlan:
        """Change it, and say what was changed. May be repeated. Admins only."""
        done: SlurmPlan = self._transport.call("POST", "/slurm/apply", {}, timeout_seconds=_MANY_STEPS_SECONDS)
        return done
