"""Login to a hub by the account at Heliostat: `HeliostatAuthenticator`, which gets a token of each user by it."""

import asyncio
import socket
from typing import Any

from jupyterhub.auth import Authenticator
from traitlets import Bool, Integer, Unicode

from heliostat.client import Client
from heliostat.errors import BadRequest, Forbidden, HeliostatError, NotAuthenticated, TooManyRequests

_NO = (NotAuthenticated, BadRequest, Forbidden, TooManyRequests)


class HeliostatAuthenticator(Authenticator):  # type: ignore[misc]
    """Name and password are those of Heliostat. The hub keeps a token of each user, encrypted by its crypt key."""

    heliostat_url = Unicode("", help="Heliostat's address; empty: HELIOSTAT_URL, or this machine's socket.")
    heliostat_url.tag(config=True)
    token_days = Integer(30, help="For so long servers can be ended without another login.").tag(config=True)

    enable_auth_state = Bool(True, help="Where the token is kept.").tag(config=True)
    allow_all = Bool(True, help="All of Heliostat's users; else those in allowed_users.").tag(config=True)

    async def authenticate(self, handler: Any, data: dict[str, str]) -> dict[str, Any] | None:
        name, password = data["username"], data["password"]
        try:
            token = await asyncio.to_thread(self._trade, name, password)
        except _NO as error:
            self.log.warning("No login for %r: %s", name, error)
            return None
        return {"name": name, "auth_state": {"heliostat_token": token}}

    def normalize_username(self, username: str) -> str:
        """Heliostat tells Ann from ann, so must the hub."""
        return username

    def _trade(self, name: str, password: str) -> str:
        """A password for a token of this hub's, which takes the place of the last one."""
        with Client(self.heliostat_url or None) as stranger:
            login = stranger.auth.login(name, password)
        with Client(self.heliostat_url or None, login["token"]) as client:
            try:
                return _new_token(client, f"jupyterhub@{socket.gethostname()}", self.token_days)
            finally:
                _revoke(client, int(login["id"]))


def _new_token(client: Client, label: str, days: int) -> str:
    earlier = [one["id"] for one in client.tokens.list() if one["name"] == label and one.get("revoked_at") is None]
    token: str = client.tokens.create(label, days)["token"]
    for number in earlier:
        _revoke(client, int(number))
    return token


def _revoke(client: Client, number: int) -> None:
    try:
        client.tokens.revoke(number)
    except HeliostatError:
        return  # it ends by itself
