"""A machine with made-up Unix users, a clock that tests turn, and a store on a temporary disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from argon2 import PasswordHasher

from heliostat.auth.passwords import Passwords
from heliostat.auth.unix_accounts import UnixAccount, UnixAccounts
from heliostat.store.database import Store
from support.new_database import create_database

ROOT, DAEMON, ALICE, BOB, ODD = 0, 1, 1000, 1001, 1002
CHEAP_HASHER = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
CHEAP_PASSWORDS = Passwords(CHEAP_HASHER)


@dataclass(frozen=True)
class FakeUnix(UnixAccounts):
    server_uid: int = ROOT
    users: dict[int, str] = field(
        default_factory=lambda: {ROOT: "root", DAEMON: "daemon", ALICE: "alice", BOB: "bob", ODD: "Odd@lab"}
    )
    aliases: dict[str, int] = field(default_factory=lambda: {"toor": ROOT, "bobby": BOB})

    def find_by_uid(self, uid: int) -> UnixAccount | None:
        name = self.users.get(uid)
        return None if name is None else UnixAccount(uid, uid, name, f"/home/{name}")

    def find_by_name(self, name: str) -> UnixAccount | None:
        uids = {known: uid for uid, known in self.users.items()} | self.aliases
        return self.find_by_uid(uids[name]) if name in uids else None


@dataclass
class Clock:
    at: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at

    def turn(self, **by: float) -> None:
        self.at += timedelta(**by)


@contextmanager
def new_store(folder: Path) -> Iterator[Store]:
    path = folder / "heliostat.db"
    create_database(path)
    store = Store(path)
    yield store
    store.close()
