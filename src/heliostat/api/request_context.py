"""Dependencies of endpoints: the context and the authenticated caller."""

import base64
import binascii
from typing import Annotated

from fastapi import Depends, Path, Query, Request
from starlette.concurrency import run_in_threadpool

from heliostat.api.token_scopes import scopes_that_allow
from heliostat.auth.client_address import describe_client
from heliostat.errors import HeliostatError, NotAuthenticated
from heliostat.models import Caller, User
from heliostat.server_log import bind_log_context
from heliostat.services.context import Context
from heliostat.store.accounts import find_user

MAX_ID = 2**53

AllUsersParam = Annotated[bool, Query(alias="all", description="Of all users. Admins only.")]


def get_context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


def client_address(request: Request) -> str:
    return describe_client(request.scope)


async def current_caller(request: Request) -> Caller:
    """Authenticates by token or password; without them, on the Unix socket, by the Unix user of the peer."""
    caller = await _authenticate(request)
    bind_log_context(user=caller.user.name)
    if job_id := request.path_params.get("job_id"):
        bind_log_context(job=job_id)
    return caller


async def _authenticate(request: Request) -> Caller:
    authenticator = get_context(request).authenticator
    scheme, _, proof = _authorization(request).partition(" ")
    address = client_address(request)
    match scheme.lower():
        case "bearer":
            return token_caller(request, proof.strip())
        case "basic":
            name, password = _name_and_password(proof)
            user = await run_in_threadpool(authenticator.authenticate_password, name, password, address)
            return Caller(user, "password", address)
        case unknown if unknown:
            raise NotAuthenticated(
                "This Authorization scheme is not supported.",
                "Use Bearer with a token, or Basic with name and password.",
            )
    peer_uid = getattr(request.state, "peer_uid", None)
    if peer_uid is None:
        raise NotAuthenticated(
            "Please log in.",
            "Create a token on the server with `helio token create --name laptop` and set HELIOSTAT_TOKEN, "
            "or use `helio login`.",
        )
    return Caller(authenticator.authenticate_peer(peer_uid), "socket", address)


def token_caller(request: Request, secret: str) -> Caller:
    """Raises Forbidden if the scope of the token does not allow this request."""
    scopes = scopes_that_allow(request.method, request.scope["path"])
    user = get_context(request).authenticator.authenticate_token(secret, scopes)
    return Caller(user, "token", client_address(request))


async def is_still_authenticated(request: Request, caller: Caller) -> bool:
    """Whether the caller of a long request is still authenticated and their account has not changed."""
    context = get_context(request)
    try:
        if caller.via != "password":  # checking a password again would take 0.1 s
            return (await current_caller(request)).user == caller.user
        user = await run_in_threadpool(_account, context, caller.user.name)
    except HeliostatError:
        return False
    return user == caller.user


def _account(context: Context, name: str) -> User | None:
    with context.store.read() as conn:
        return find_user(conn, name)


def _authorization(request: Request) -> str:
    headers = request.headers.getlist("authorization")
    if len(headers) > 1:  # a reverse proxy may have checked another one
        raise NotAuthenticated("There is more than one Authorization header.", "Send exactly one.")
    return headers[0] if headers else ""


def _name_and_password(proof: str) -> tuple[str, str]:
    try:
        name, _, password = base64.b64decode(proof, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        raise NotAuthenticated(
            "The Authorization header cannot be read.", "For Basic, send name:password in base64."
        ) from None
    return name, password


async def _context_dependency(request: Request) -> Context:
    return get_context(request)


CallerDep = Annotated[Caller, Depends(current_caller)]
ContextDep = Annotated[Context, Depends(_context_dependency)]
IdPath = Annotated[int, Path(ge=1, le=MAX_ID)]
