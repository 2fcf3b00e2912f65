"""Endpoints that synchronize the accounts of Slurm with the accounts of Heliostat, for admins."""

from typing import Any

from starlette.responses import JSONResponse, Response

from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.services.accounts.slurm_sync import AccountPlan, apply_slurm_accounts, plan_slurm_accounts

router = BodyRouter(prefix="/slurm", tags=["slurm"])


@router.get("/plan")
def show_account_plan(caller: CallerDep, context: ContextDep) -> Response:
    """Show the changes that would make the accounts of Slurm match those of Heliostat. Changes nothing. Admins
    only."""
    return JSONResponse(_view(plan_slurm_accounts(context, caller)))


@router.post("/apply")
def apply_account_plan(caller: CallerDep, context: ContextDep) -> Response:
    """Apply the plan. Stops at the first step that Slurm rejects. Admins only."""
    return JSONResponse(_view(apply_slurm_accounts(context, caller).plan))


def _view(plan: AccountPlan) -> dict[str, Any]:
    return {
        "cluster": plan.cluster,
        "steps": [{"sentence": step.sentence, "argv": step.argv} for step in plan.steps],
        "unmanaged": list(plan.unmanaged),
        "unsupported": list(plan.unsupported),
    }
