"""The request that comes most of all, the submission of one job, without the framework's many steps.

Whatever is unusual about one goes the ordinary way, which has the words for it.
"""

import json
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from heliostat.api.deps import current_caller, get_context
from heliostat.api.jobs import submit
from heliostat.api.schemas import JobBody
from heliostat.errors import HeliostatError

_KEY = b"idempotency-key"
_MOST_OF_A_KEY = 200


class QuickSubmission:
    """Stands where the routes would be asked."""

    def __init__(
        self, app: ASGIApp, path: str, tell: Callable[[Request, HeliostatError], Awaitable[Response]]
    ) -> None:
        self._app, self._path, self._tell = app, path, tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != self._path or not _is_usual(scope):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            first = await receive()
            if (job := _job_in(first)) is None:
                await self._app(scope, _again(first, receive), send)
                return
            key = request.headers.get(_KEY.decode())
            response = await submit(job, await current_caller(request), get_context(request), key)
        except HeliostatError as error:
            response = await self._tell(request, error)
        await response(scope, receive, send)


def _is_usual(scope: Scope) -> bool:
    if scope["method"] != "POST":
        return False
    kinds = [value for name, value in scope["headers"] if name == b"content-type"]
    keys = [value for name, value in scope["headers"] if name == _KEY]
    return kinds == [b"application/json"] and len(keys) < 2 and all(0 < len(key) <= _MOST_OF_A_KEY for key in keys)


def _job_in(message: Message) -> JobBody | None:
    """If the whole of it is in this message, and right."""
    if message["type"] != "http.request" or message.get("more_body"):
        return None
    try:
        return JobBody.model_validate(json.loads(message.get("body", b"")))
    except (ValueError, RecursionError):
        return None


def _again(first: Message, receive: Receive) -> Receive:
    left = [first]

    async def from_the_beginning() -> Message:
        return left.pop() if left else await receive()

    return from_the_beginning
