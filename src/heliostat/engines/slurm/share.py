"""Slurm's own count of what was used, as `sshare` prints it: pure."""

from collections.abc import Iterator

from heliostat.engines.accounts import AccountUse

SSHARE_FIELDS = "Account,User,NormShares,RawUsage,GrpTRESRaw"


def parse_sshare(said: str) -> Iterator[AccountUse]:
    """Of `Account|User|NormShares|RawUsage|GrpTRESRaw`; what is below stands one blank further in."""
    above: list[str] = []
    for line in said.splitlines():
        row = line.split("|")
        if len(row) < 5:
            continue
        name, user = row[0].strip(), row[1].strip()
        depth = len(row[0]) - len(row[0].lstrip(" "))
        del above[depth:]
        parent = above[-1] if above else ""
        if not user:
            above += [name] * (depth + 1 - len(above))
        yield AccountUse(name, user, parent, _number(row[2]), _number(row[3]), _gpu_minutes(row[4]) / 60)


def _gpu_minutes(tres: str) -> float:
    return _number(dict(part.partition("=")[::2] for part in tres.split(",")).get("gres/gpu", ""))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
