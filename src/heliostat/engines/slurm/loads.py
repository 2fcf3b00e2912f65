"""How busy Slurm's nodes are: pure."""

from heliostat.models import Reading

LOAD_FIELDS = ("NodeList", "CPUs", "CPUsLoad", "Memory", "FreeMem")


def loads_of_sinfo(text: str) -> dict[str, Reading]:
    """Lines of LOAD_FIELDS; what a node does not say ("N/A") is not known.

    Slurm knows a load, the number of processes that want to run, and counts files in the page cache as in use.
    """
    found: dict[str, Reading] = {}
    for line in text.splitlines():
        words = line.rstrip("|").split("|")
        if len(words) == len(LOAD_FIELDS):
            name, cpus, load, memory, free = words[0], *map(_number, words[1:])
            in_use = None if memory is None or free is None else max(0.0, memory - free)
            found[name] = Reading(None if load is None or cpus is None else min(load, cpus), in_use)
    return found


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < 1e15 else None
