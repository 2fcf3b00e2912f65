"""A home for the web part: many jobs that are over, a queue, and people whose browsers are logged in already."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from bench.filled_store import create_filled_store
from heliostat.auth.client_address import ClientAddress
from heliostat.auth.web_logins import generate_secret, secret_digest
from heliostat.config import Home
from heliostat.models import WebLogin
from heliostat.store.database import Store, Transaction
from heliostat.store.web_logins import add_login

if TYPE_CHECKING:
    from heliostat import Client

USER_COUNT = 40
QUEUED_JOBS = 1000
_SETTINGS = 'server.engine = "simulated"\nserver.simulated_nodes = "25x4xA100"\n'


def create_home(home: Path, finished: int) -> list[str]:
    """The secrets of a cookie for each of 40 people."""
    create_filled_store(home, finished)
    (home / "cluster.toml").write_text(_SETTINGS)
    secrets = [generate_secret() for _ in range(USER_COUNT)]
    store = Store(Home(home).database)
    try:
        store.write(lambda tx: _let_in(tx, secrets))
    finally:
        store.close()
    return secrets


def fill_queue(client: Client, count: int = QUEUED_JOBS) -> None:
    """Every GPU of the 25 nodes is taken for long, and so many jobs wait."""
    client.submit_many([{"command": ["sleep", "86400"], "name": "holds", "gpus": 4}] * 25)
    client.submit_many([{"command": ["sleep", "600"], "name": f"waits-{n % 31}", "gpus": 1} for n in range(count)])


def _let_in(tx: Transaction, secrets: list[str]) -> None:
    now, address = datetime.now(UTC), str(ClientAddress("127.0.0.1", os.geteuid()))
    for number, secret in enumerate(secrets):
        until = now + timedelta(days=1)
        login = WebLogin(0, f"user{number:02}", "password", now, until, now, "bench", address)
        add_login(tx, login, secret_digest(secret))
