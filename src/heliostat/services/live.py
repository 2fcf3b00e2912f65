"""What a commit changed, in the few words that open pages listen for."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from heliostat.models import JobId
from heliostat.services.context import Context
from heliostat.store.database import Changes


@dataclass(frozen=True, slots=True)
class Changed:
    jobs: frozenset[JobId] = frozenset()
    nodes: bool = False
    rules: bool = False
    services: bool = False

    def __bool__(self) -> bool:
        return bool(self.jobs) or self.nodes or self.rules or self.services

    def __or__(self, other: "Changed") -> "Changed":
        return Changed(
            self.jobs | other.jobs,
            self.nodes or other.nodes,
            self.rules or other.rules,
            self.services or other.services,
        )


def watch_commits(context: Context, listener: Callable[[Changed], None]) -> None:
    """The listener is called in the thread that commits, and must be quick."""

    def on_commit(changes: Changes) -> None:
        jobs = frozenset(event.job_id for event in changes.events)
        if jobs or changes.nodes or changes.rules or changes.services:
            listener(Changed(jobs, changes.nodes, changes.rules, changes.services))

    context.store.on_commit(on_commit)


def topics_of(changed: Changed, wanted: Collection[str]) -> set[str]:
    """Which of the wanted topics (`jobs`, `job:12`, `nodes`, `rules`, `services`) changed."""
    return {topic for topic in wanted if _is_touched(changed, topic)}


def _is_touched(changed: Changed, topic: str) -> bool:
    match topic:
        case "jobs":
            return bool(changed.jobs)
        case "nodes":
            return changed.nodes
        case "rules":
            return changed.rules
        case "services":
            return changed.services
    return int(topic.removeprefix("job:")) in changed.jobs
