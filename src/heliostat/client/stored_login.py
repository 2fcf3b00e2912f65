"""The login (URL and token) that `helio login` stores."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class StoredLogin:
    """The login that `helio login` stores."""

    url: str
    token: str
    token_id: int | None = None  # for revoking it at logout


def login_path(environ: Mapping[str, str] = os.environ) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "heliostat" / "login.json"


def read_login(environ: Mapping[str, str] = os.environ) -> StoredLogin | None:
    """The stored login; None if there is none or it cannot be read."""
    try:
        stored = json.loads(login_path(environ).read_text(encoding="utf-8"))
        return StoredLogin(str(stored["url"]), str(stored["token"]), stored.get("token_id"))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_login(login: StoredLogin, environ: Mapping[str, str] = os.environ) -> Path:
    """Writes atomically a file that only its owner can read."""
    path = login_path(environ)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".login.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        json.dump(asdict(login), file)
    temporary.replace(path)
    return path


def delete_login(environ: Mapping[str, str] = os.environ) -> bool:
    """Returns whether there was one."""
    with suppress(FileNotFoundError):
        login_path(environ).unlink()
        return True
    return False
