"""An installation with three simulated nodes, an admin, and the users that a test adds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from heliostat.auth.authentication import Authenticator
from heliostat.config import Home, Settings
from heliostat.controller.node_inventory import NodeInventory
from heliostat.controller.shares_and_quotas import SchedulingRules
from heliostat.engines.contract import Capabilities
from heliostat.models import AuditEntry, Caller, Device, Job, JobSpec, JobState, Node, Resources
from heliostat.services.accounts import audit, projects, users
from heliostat.services.accounts.users import NewUser
from heliostat.services.context import ConcurrencyLimit, Context, ReadCache
from heliostat.store import accounts as stored
from heliostat.store import job_writes
from heliostat.store.samples import SampleStore
from unit.auth.stand_ins import CHEAP_PASSWORDS, ROOT, Clock, FakeUnix, new_store


@dataclass
class Machines:
    """An engine that only has nodes."""

    capabilities = Capabilities(runs_on_server_host=True)

    found: list[Node]

    def set_nodes_changed_callback(self, changed: object) -> None: ...

    def nodes(self) -> list[Node]:
        return self.found


@dataclass
class Site:
    context: Context
    clock: Clock
    machines: Machines
    root: Caller

    def person(self, name: str, *in_projects: str) -> Caller:
        users.create_user(self.context, self.root, NewUser(name, projects=in_projects or None))
        with self.context.store.read() as conn:
            user = stored.find_user(conn, name)
        assert user is not None
        return Caller(user, "token", "10.0.0.9")

    def project(self, name: str, department: str = "default") -> None:
        projects.create_project(self.context, self.root, name, department)

    def audit(self) -> list[AuditEntry]:
        return audit.list_audit_entries(self.context, self.root)[0]

    def add_job(self, number: int, **fields: object) -> Job:
        job = replace(a_job(number, self.clock.at), **fields)  # type: ignore[arg-type]
        self.context.store.write(lambda tx: job_writes.add_jobs(tx, [job]))
        return job


def a_job(number: int, at: object) -> Job:
    spec, wanted = JobSpec(("true",)), Resources(gpus=1)
    return Job(number, "batch", "job", JobState.PENDING, "root", "root", "default", wanted, spec, at)  # type: ignore[arg-type]


@contextmanager
def new_site(folder: Path) -> Iterator[Site]:
    clock = Clock()
    with new_store(folder) as store:
        settings = Settings(Home(folder))
        authenticator = Authenticator(store, settings.auth, clock, FakeUnix(), CHEAP_PASSWORDS)
        machines = Machines([a_node("n1"), a_node("n2"), a_node("n3", gpus=0)])
        parts = SimpleNamespace(
            settings=settings,
            engine=machines,
            store=store,
            authenticator=authenticator,
            now=clock,
            node_inventory=NodeInventory(machines, store),  # type: ignore[arg-type]
            scheduling_rules=SchedulingRules(store),
            search_limit=ConcurrencyLimit("search"),
            report_limit=ConcurrencyLimit("report"),
            preview_limit=ConcurrencyLimit("preview"),
            recent_jobs=ReadCache(),
            past_usage=ReadCache(),
            samples=SampleStore(folder / "samples.db"),
        )
        root = Caller(authenticator.authenticate_peer(ROOT), "socket", "local")
        yield Site(cast(Context, parts), clock, machines, root)
        authenticator.close()
        parts.samples.close()


def a_node(name: str, gpus: int = 4) -> Node:
    devices = tuple(Device(f"{name}-{n}", n, "A100", "A100", 1024) for n in range(gpus))
    return Node(name, 8, 8192, devices, labels={"bought": "2024"})
