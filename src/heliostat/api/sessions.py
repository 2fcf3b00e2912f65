"""Ports of running jobs over HTTP: where the proxy has them."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel

from heliostat.api.deps import CallerDep, ContextDep, IdPath
from heliostat.models.sessions import MOST_PORT, Target
from heliostat.services.addresses import Addresses
from heliostat.services.context import Context
from heliostat.services.proxying import open_port, program_key

router = APIRouter(tags=["sessions"])
PortPath = Annotated[int, Path(ge=1, le=MOST_PORT)]


class PortAnswer(BaseModel):
    job_id: int
    port: int
    url: str


class KeyAnswer(BaseModel):
    url: str
    key: str
    expires_at: str


@router.get("/jobs/{job_id}/ports/{port}", summary="Where a port of a running job of yours is found in a browser")
def show_port(
    job_id: IdPath, port: PortPath, request: Request, caller: CallerDep, context: ContextDep
) -> PortAnswer:
    """Only a port on which a process of the job listens."""
    target = open_port(context, caller, job_id, port)
    return PortAnswer(job_id=job_id, port=port, url=addresses_for(request, context).of(target))


@router.post("/jobs/{job_id}/ports/{port}/key", summary="A secret with which a program uses that address")
def make_port_key(
    job_id: IdPath, port: PortPath, request: Request, response: Response, caller: CallerDep, context: ContextDep
) -> KeyAnswer:
    """To be sent as `Authorization: Bearer KEY`; the server inside never sees it."""
    return key_for(open_port(context, caller, job_id, port), request, response, caller, context)


def key_for(
    target: Target, request: Request, response: Response, caller: CallerDep, context: Context
) -> KeyAnswer:
    secret, until = program_key(context, caller, target)
    response.headers["Cache-Control"] = "no-store"
    return KeyAnswer(url=addresses_for(request, context).of(target), key=secret, expires_at=until)


def addresses_for(request: Request, context: Context) -> Addresses:
    """As whoever asks reaches us; over the Unix socket nothing is known of that."""
    known = context.addresses
    return known if request.client is None else known.seen_at(request.headers.get("host", ""))
