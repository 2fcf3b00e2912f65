"""Endpoints of the ports of a running job."""

from typing import Annotated

from fastapi import Path, Request, Response
from pydantic import BaseModel

from heliostat.api.access_keys import AccessKeyResponse, addresses_for_caller, issue_access_key
from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import CallerDep, ContextDep, IdPath
from heliostat.models.sessions import MAX_PORT
from heliostat.services.proxy_routes import open_port

router = BodyRouter(tags=["sessions"])
PortPath = Annotated[int, Path(ge=1, le=MAX_PORT, json_schema_extra={"minimum": 1024})]


class PortResponse(BaseModel):
    job_id: int
    port: int
    url: str


@router.get("/jobs/{job_id}/ports/{port}", summary="Show the address of a port of your running job")
def show_port(
    job_id: IdPath, port: PortPath, request: Request, caller: CallerDep, context: ContextDep
) -> PortResponse:
    """A process of the job must listen on the port."""
    target = open_port(context, caller, job_id, port)
    return PortResponse(job_id=job_id, port=port, url=addresses_for_caller(request, context).target_url(target))


@router.post("/jobs/{job_id}/ports/{port}/key", summary="Create a key for programs that use that address")
def create_port_key(
    job_id: IdPath, port: PortPath, request: Request, response: Response, caller: CallerDep, context: ContextDep
) -> AccessKeyResponse:
    """Send it as `Authorization: Bearer KEY`. It is not forwarded to the job."""
    return issue_access_key(open_port(context, caller, job_id, port), request, response, caller, context)
