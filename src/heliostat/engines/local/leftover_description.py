"""Attempts of an earlier server that the database may not know."""

import os
import pwd

from heliostat.engines.contract import LeftoverAttempt
from heliostat.engines.local.cgroups import Cgroup
from heliostat.engines.local.claim_files import ClaimFiles
from heliostat.models import AttemptId

_MAX_PIDS = 10


def make_leftover(attempt_id: AttemptId, group: Cgroup | None, claims: ClaimFiles) -> LeftoverAttempt:
    """`group`: its processes; None: from before the last boot."""
    pids = group.pids() if group else []
    claim = claims.read_claim(attempt_id)
    shown = [str(pid) for pid in pids[:_MAX_PIDS]]
    return LeftoverAttempt(
        attempt_id,
        bool(pids),
        _owner(pids),
        claims.read_claim_time(attempt_id) if claim else None,
        f"process{'' if len(pids) == 1 else 'es'} {', '.join(shown)}" if pids else "",
        f"kill {' '.join(shown)}" if pids else None,
    )


def _owner(pids: list[int]) -> str:
    for pid in pids:
        try:
            return pwd.getpwuid(os.stat(f"/proc/{pid}").st_uid).pw_name
        except (OSError, KeyError):
            continue
    return ""
