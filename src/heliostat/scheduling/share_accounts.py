"""Accounts of the fair-share tree: departments, projects and user quotas by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from heliostat.models import Department, Project, Quota

_NO_QUOTA = Quota()


@dataclass(frozen=True, slots=True)
class ShareAccounts:
    """Unknown projects, departments and users get the defaults."""

    departments: Mapping[str, Department] = field(default_factory=dict)
    projects: Mapping[str, Project] = field(default_factory=dict)
    user_quotas: Mapping[str, Quota] = field(default_factory=dict)

    def project_or_default(self, name: str) -> Project:
        return self.projects.get(name) or Project(name, "default")

    def department_or_default(self, name: str) -> Department:
        return self.departments.get(name) or Department(name)

    def department_of(self, project: str) -> Department:
        return self.department_or_default(self.project_or_default(project).department)

    def quota_of_user(self, name: str) -> Quota:
        return self.user_quotas.get(name, _NO_QUOTA)
