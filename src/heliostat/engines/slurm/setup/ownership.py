"""Which files we made, and whether somebody has changed them since: a mark and a digest at their top. Pure."""

import hashlib
from enum import StrEnum

MARK = "# Made by Heliostat (helio slurm setup). Change nodes.toml and apply it, not this file."
_DIGEST = "# sha256 of the rest: "


class Origin(StrEnum):
    OURS = "ours"
    CHANGED = "changed"  # ours once, and somebody has edited it
    FOREIGN = "foreign"


def signed(body: str) -> str:
    return f"{MARK}\n{_DIGEST}{_digest(body)}\n{body}"


def origin_of(text: str) -> Origin:
    mark, _, rest = text.partition("\n")
    digest, _, body = rest.partition("\n")
    if mark != MARK or not digest.startswith(_DIGEST):
        return Origin.FOREIGN
    return Origin.OURS if digest == _DIGEST + _digest(body) else Origin.CHANGED


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8")).hexdigest()
