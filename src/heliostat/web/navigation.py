"""What the header leads to. An entry shows once some page answers at its path."""

from dataclasses import dataclass

from heliostat.models import User


@dataclass(frozen=True, slots=True)
class Entry:
    title: str
    path: str
    icon: str  # a symbol of static/icons.svg
    for_admins: bool = False


ENTRIES = (
    Entry("Home", "/", "home"),
    Entry("Cluster", "/cluster", "cluster"),
    Entry("Jobs", "/jobs", "jobs"),
    Entry("Sessions", "/sessions", "session"),
    Entry("Services", "/services", "fabric"),
    Entry("Schedules", "/schedules", "timed_out"),
    Entry("Workflows", "/workflows", "workflow"),
    Entry("Datasets", "/datasets", "dataset"),
    Entry("Environments", "/environments", "environment"),
    Entry("Share", "/share", "share"),
    Entry("Reports", "/reports", "report"),
    Entry("Fabric", "/fabric", "fabric"),
    Entry("Admin", "/admin", "admin", for_admins=True),
)


@dataclass(frozen=True, slots=True)
class Link:
    title: str
    path: str
    icon: str
    current: bool


def links(user: User, served: frozenset[str], path: str) -> tuple[Link, ...]:
    """The entries for this person, on this page."""
    shown = (entry for entry in ENTRIES if entry.path in served and (user.is_admin or not entry.for_admins))
    return tuple(Link(entry.title, entry.path, entry.icon, _is_at(entry.path, path)) for entry in shown)


def _is_at(entry: str, path: str) -> bool:
    return path == entry or (entry != "/" and path.startswith(entry + "/"))
