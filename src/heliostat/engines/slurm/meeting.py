"""How the tasks of a gang find one another: lines for its script, which runs on the first node."""

from collections.abc import Iterator
from shlex import quote

from heliostat.engines.templates import MOST_NAMED_HOSTS

_HOSTNAMES = 'scontrol show hostnames "$SLURM_JOB_NODELIST"'
_FIRST_PORT, _PORTS = 20_000, 10_000
# Nodes come one a line; `2(x3),1` are the tasks on each.
_HOST_OF_EACH_TASK = """\
BEGIN {
    parts = split(counts, part, ",")
    for (i = 1; i <= parts; i++) {
        times = match(part[i], /x[0-9]+/) ? substr(part[i], RSTART + 1, RLENGTH - 1) : 1
        for (j = 0; j < times; j++) on[++nodes] = part[i] + 0
    }
}
{ for (k = 0; k < on[NR]; k++) { printf "%s%s", comma, $1; comma = "," } }"""


def meeting_point(tasks: int) -> Iterator[str]:
    """Sets heliostat_address, heliostat_port (one that nobody uses here) and heliostat_hosts (unless too many)."""
    yield f"heliostat_address=$({_HOSTNAMES} | head -n 1)"
    yield f"heliostat_port=$(({_FIRST_PORT} + SLURM_JOB_ID % {_PORTS}))"
    yield """while grep -qi ":$(printf %04X "$heliostat_port") " /proc/net/tcp /proc/net/tcp6 2>/dev/null; do"""
    yield "    heliostat_port=$((heliostat_port + 1))"
    yield "done"
    if tasks > MOST_NAMED_HOSTS:
        yield "heliostat_hosts="
        return
    yield f"heliostat_hosts=$({_HOSTNAMES} |"
    yield f'    awk -v counts="$SLURM_TASKS_PER_NODE" {quote(_HOST_OF_EACH_TASK)})'
