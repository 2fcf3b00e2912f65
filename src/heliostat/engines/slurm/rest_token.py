"""The token that opens slurmrestd: read from a file only the server may read, and never shown."""

import base64
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from heliostat.errors import EngineUnavailable

_TOKEN = re.compile(r"[A-Za-z0-9_.=-]{1,8192}")
_LONGEST = 16_384
_HOW = "Make one as root: scontrol token lifespan=31536000 > {path}; chmod 600 {path}"


@dataclass(frozen=True, slots=True)
class Token:
    text: str = field(repr=False)
    claims: Mapping[str, object] = field(repr=False)

    @property
    def expires_at(self) -> datetime | None:
        """None: it does not say."""
        said = self.claims.get("exp")
        if not isinstance(said, int | float) or not 0 < said < 2**33:
            return None
        return datetime.fromtimestamp(said, UTC)

    @property
    def user(self) -> str:
        """Whose it is."""
        name = self.claims.get("sun")
        return name if isinstance(name, str) and name else "root"


class TokenFile:
    """Read again whenever it has changed. Threads may share it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._last: tuple[tuple[int, ...], Token] | None = None

    def token(self) -> Token:
        """Raises EngineUnavailable when there is none that can be used; expired ones are returned."""
        try:
            with open(self.path, "rb") as file:
                about = os.fstat(file.fileno())
                seen = (about.st_ino, about.st_mtime_ns, about.st_size, about.st_mode, about.st_uid)
                if self._last is None or self._last[0] != seen:
                    self._check(about)
                    self._last = (seen, self._read(file.read(_LONGEST)))
        except OSError as error:
            raise self._unusable(f"cannot be read: {error.strerror}") from error
        return self._last[1]

    def _check(self, about: os.stat_result) -> None:
        if not stat.S_ISREG(about.st_mode):
            raise self._unusable("is no file")
        if about.st_mode & 0o077 or about.st_uid not in (0, os.geteuid()):
            raise EngineUnavailable(
                f"Others may read the token in {self.path}.", f"Make a new one, and: chmod 600 {self.path}"
            )

    def _read(self, content: bytes) -> Token:
        """As `scontrol token` prints it, or the token alone."""
        text = content.decode("utf-8", "replace").strip().removeprefix("SLURM_JWT=")
        claims = _claims(text)
        if claims is None:
            raise self._unusable("holds no token")
        return Token(text, claims)

    def _unusable(self, what: str) -> EngineUnavailable:
        return EngineUnavailable(f"The file {self.path} (slurm_token_file) {what}.", _HOW.format(path=self.path))


def _claims(text: str) -> dict[str, object] | None:
    """What is in a token, unchecked: Slurm checks it. None: it is none."""
    parts = text.split(".")
    if len(parts) != 3 or not _TOKEN.fullmatch(text):
        return None
    try:
        said = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return None
    return said if isinstance(said, dict) else None
