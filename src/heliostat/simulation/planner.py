"""The planner a replay asks: the live one, over a board of its own."""

from collections.abc import Mapping
from datetime import datetime

from heliostat.models import Department, Job, Node, Project
from heliostat.scheduling.accounts import Accounts
from heliostat.scheduling.board import Board
from heliostat.scheduling.plan import plan
from heliostat.scheduling.snapshot import Plan
from heliostat.simulation.policies import Named


class LivePlanner:
    """Told of every change, as the controller tells its board; decides by the same function."""

    def __init__(self, named: Named, nodes: tuple[Node, ...], departments: Mapping[str, str]) -> None:
        """`departments` are those of each project."""
        self._policy = named.policy
        self._board = Board(named.policy)
        self._board.set_nodes(nodes)
        self._board.set_accounts(_accounts(named, departments))

    def put(self, job: Job, now: datetime) -> None:
        self._board.put(job, now)

    def decide(self, now: datetime) -> Plan:
        return plan(self._board.glance(now), self._policy, now)


def _accounts(named: Named, departments: Mapping[str, str]) -> Accounts:
    projects = {name: Project(name, of, share=named.projects.get(name, 1)) for name, of in departments.items()}
    names = sorted(set(departments.values()))
    return Accounts({name: Department(name, named.departments.get(name, 1)) for name in names}, projects)
