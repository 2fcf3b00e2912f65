"""Change topics: which subscribed topics of open pages a commit changed."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from heliostat.models import JobId
from heliostat.services.context import Context
from heliostat.store.database import StoreChanges


@dataclass(frozen=True, slots=True)
class ChangedTopics:
    job_ids: frozenset[JobId] = frozenset()
    nodes: bool = False
    rules: bool = False
    services: bool = False

    def __bool__(self) -> bool:
        return bool(self.job_ids) or self.nodes or self.rules or self.services

    def __or__(self, other: "ChangedTopics") -> "ChangedTopics":
        return ChangedTopics(
            self.job_ids | other.job_ids,
            self.nodes or other.nodes,
            self.rules or other.rules,
            self.services or other.services,
        )


def subscribe_to_commits(context: Context, listener: Callable[[ChangedTopics], None]) -> None:
    """The listener is called in the thread that commits, and must be quick."""

    def on_commit(changes: StoreChanges) -> None:
        jobs = frozenset(event.job_id for event in changes.events)
        if jobs or changes.nodes_changed or changes.rules_changed or changes.services_changed:
            listener(ChangedTopics(jobs, changes.nodes_changed, changes.rules_changed, changes.services_changed))

    context.store.on_commit(on_commit)


def match_topics(changed: ChangedTopics, subscribed: Collection[str]) -> set[str]:
    """Which of the subscribed topics (`jobs`, `job:12`, `nodes`, `rules`, `services`) changed."""
    return {topic for topic in subscribed if _is_changed(changed, topic)}


def _is_changed(changed: ChangedTopics, topic: str) -> bool:
    match topic:
        case "jobs":
            return bool(changed.job_ids)
        case "nodes":
            return changed.nodes
        case "rules":
            return changed.rules
        case "services":
            return changed.services
    return int(topic.removeprefix("job:")) in changed.job_ids
