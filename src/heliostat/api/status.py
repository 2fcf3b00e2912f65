"""Endpoints of the server status and the doctor."""

from dataclasses import asdict

from fastapi import Request
from starlette.responses import JSONResponse, Response

from heliostat import __version__
from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.api.serialization import serialize_time
from heliostat.services.cluster import nodes as services
from heliostat.services.cluster.outage import find_outage
from heliostat.store import jobs as stored

router = BodyRouter(tags=["cluster"])


@router.get("/status")
def show_status(request: Request, caller: CallerDep, context: ContextDep) -> Response:
    """Show the server: process, version, engine, jobs by state, pause, accuracy of forecasts, and since when the
    engine's own queue has not answered."""
    with context.store.read() as conn:
        counts = stored.count_unfinished_by_state(conn)
    facts = request.app.state.facts
    jobs = {state.value: counts.get(state, 0) for state in counts}
    status = {"version": __version__, "engine": context.engine.name, "user": caller.user.name, "jobs": jobs}
    pause = context.pause.current
    paused = {"at": pause.at, "reason": pause.reason} if pause else None
    outage = find_outage(context)
    away = None if outage is None else {"since": serialize_time(outage.since), "reason": outage.reason}
    accuracy = asdict(context.forecaster.accuracy())
    return JSONResponse({**facts, **status, "paused": paused, "forecasts": accuracy, "engine_outage": away})


@router.get("/doctor")
def show_doctor(caller: CallerDep, context: ContextDep) -> Response:
    """Check the installation and suggest fixes. Admins only."""
    findings = services.diagnose_installation(context, caller)
    return JSONResponse({"findings": [asdict(finding) for finding in findings]})


@router.post("/doctor")
def run_doctor_probe(caller: CallerDep, context: ContextDep) -> Response:
    """Check the installation; on Slurm, also with a small job on one node of each partition. Admins only."""
    findings = services.diagnose_installation(context, caller, probe=True)
    return JSONResponse({"findings": [asdict(finding) for finding in findings]})
