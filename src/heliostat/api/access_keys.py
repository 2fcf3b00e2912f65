"""Keys for programs that use a proxied address, and that address as the caller reaches it."""

from fastapi import Request, Response
from pydantic import BaseModel

from heliostat.api.request_context import CallerDep
from heliostat.models.sessions import ProxyTarget
from heliostat.services.context import Context
from heliostat.services.proxy_routes import create_program_key
from heliostat.services.public_urls import PublicUrls


class AccessKeyResponse(BaseModel):
    url: str
    key: str
    expires_at: str


def issue_access_key(
    target: ProxyTarget, request: Request, response: Response, caller: CallerDep, context: Context
) -> AccessKeyResponse:
    secret, until = create_program_key(context, caller, target)
    response.headers["Cache-Control"] = "no-store"
    return AccessKeyResponse(
        url=addresses_for_caller(request, context).target_url(target), key=secret, expires_at=until
    )


def addresses_for_caller(request: Request, context: Context) -> PublicUrls:
    """Addresses with the host name of the request; over the Unix socket, the configured ones."""
    urls = context.public_urls
    return urls if request.client is None else urls.for_host(request.headers.get("host", ""))
