"""JupyterHub authenticator: `HeliostatAuthenticator` logs users in with their Heliostat account."""

import asyncio
import socket
from typing import Any

from jupyterhub.auth import Authenticator
from traitlets import Bool, Integer, Unicode

from heliostat.client import Client
from heliostat.errors import BadRequest, Forbidden, HeliostatError, NotAuthenticated, TooManyRequests

_LOGIN_ERRORS = (NotAuthenticated, BadRequest, Forbidden, TooManyRequests)


class HeliostatAuthenticator(Authenticator):  # type: ignore[misc]
    """Users log in with their Heliostat name and password. The hub stores a token of each, encrypted with its
    crypt key."""

    heliostat_url = Unicode("", help="URL of Heliostat. Default: HELIOSTAT_URL, or this machine's socket.")
    heliostat_url.tag(config=True)
    token_days = Integer(
        30, help="Lifetime of a token in days. After it, a user must log in before their servers can be stopped."
    ).tag(config=True)

    enable_auth_state = Bool(True, help="Store the token in the user's auth_state.").tag(config=True)
    allow_all = Bool(True, help="Allow all Heliostat users. False: only those in allowed_users.").tag(config=True)

    async def authenticate(self, handler: Any, data: dict[str, str]) -> dict[str, Any] | None:
        name, password = data["username"], data["password"]
        try:
            token = await asyncio.to_thread(self._get_token, name, password)
        except _LOGIN_ERRORS as error:
            self.log.warning("Login of %r failed: %s", name, error)
            return None
        return {"name": name, "auth_state": {"heliostat_token": token}}

    def normalize_username(self, username: str) -> str:
        """Unchanged: Heliostat's user names are case-sensitive (Ann, ann)."""
        return username

    def _get_token(self, name: str, password: str) -> str:
        """A token for this hub, which replaces the previous one."""
        with Client(self.heliostat_url or None) as anonymous:
            login = anonymous.auth.login(name, password)
        with Client(self.heliostat_url or None, login["token"]) as client:
            try:
                return _new_token(client, f"jupyterhub@{socket.gethostname()}", self.token_days)
            finally:
                _revoke(client, int(login["id"]))


def _new_token(client: Client, label: str, days: int) -> str:
    earlier = [
        token["id"] for token in client.tokens.list() if token["name"] == label and token.get("revoked_at") is None
    ]
    secret: str = client.tokens.create(label, days)["token"]
    for number in earlier:
        _revoke(client, int(number))
    return secret


def _revoke(client: Client, number: int) -> None:
    try:
        client.tokens.revoke(number)
    except HeliostatError:
        return  # it expires by itself
