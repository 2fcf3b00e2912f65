"""Cookies: the login session, and a visitor cookie that binds the login form to a browser."""

from starlette.requests import Request
from starlette.responses import Response

from heliostat.auth.web_logins import LOGIN_LIFETIME, generate_secret

_MAX_LENGTH = 100


def session_cookie(request: Request) -> str:
    return _read(request, "helio_session")


def visitor_cookie(request: Request) -> str:
    """The value that the browser sent, or the one that the response will set."""
    if not hasattr(request.state, "visitor"):
        request.state.visitor = _read(request, "helio_visitor") or generate_secret()
    visitor: str = request.state.visitor
    return visitor


def set_session_cookie(request: Request, response: Response, secret: str) -> None:
    _set(request, response, "helio_session", secret, int(LOGIN_LIFETIME.total_seconds()))


def set_visitor_cookie(request: Request, response: Response) -> None:
    if visitor_cookie(request) != _read(request, "helio_visitor"):
        _set(request, response, "helio_visitor", visitor_cookie(request), None)


def clear_session_cookie(request: Request, response: Response) -> None:
    _set(request, response, "helio_session", "", 0)


def _set(request: Request, response: Response, name: str, value: str, seconds: int | None) -> None:
    secure = is_encrypted(request)
    full_name = f"__Host-{name}" if secure else name
    response.set_cookie(full_name, value, seconds, path="/", secure=secure, httponly=True, samesite="lax")


def _read(request: Request, name: str) -> str:
    full_name = f"__Host-{name}" if is_encrypted(request) else name
    return request.cookies.get(full_name, "")[:_MAX_LENGTH]


def is_encrypted(request: Request) -> bool:
    public = request.app.state.context.settings.server.public_url or ""
    return request.url.scheme == "https" or public.startswith("https://")
