"""The dependency graph of schedules in the formats of Chronos: for Graphviz, and as CSV."""

from collections.abc import Mapping, Sequence

from heliostat.models.schedules import Schedule


def dependency_graph_dot(schedules: Sequence[Schedule]) -> str:
    names = {schedule.id: _quoted(schedule.name) for schedule in schedules}
    nodes = [f"  {name};" for name in names.values()]
    edges = [
        f"  {names[parent]} -> {names[schedule.id]};"
        for schedule in schedules
        for parent in schedule.parents
        if parent in names
    ]
    return "\n".join(["digraph G {", *nodes, *edges, "}", ""])


def dependency_graph_csv(schedules: Sequence[Schedule], states: Mapping[int, str]) -> str:
    names = {schedule.id: _cell(schedule.name) for schedule in schedules}
    nodes = [f"node,{names[schedule.id]},{_last_result(schedule)},{states[schedule.id]}" for schedule in schedules]
    links = [
        f"link,{names[parent]},{names[schedule.id]}"
        for schedule in schedules
        for parent in schedule.parents
        if parent in names
    ]
    return "".join(f"{line}\n" for line in (*nodes, *links))


def _last_result(schedule: Schedule) -> str:
    if schedule.succeeded_at is None and schedule.failed_at is None:
        return "fresh"
    if schedule.failed_at is None or (
        schedule.succeeded_at is not None and schedule.succeeded_at > schedule.failed_at
    ):
        return "success"
    return "failure"


def _cell(name: str) -> str:
    """Quotes a name for CSV if needed."""
    return '"' + name.replace('"', '""') + '"' if set(name) & set(',"') else name


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
