import re
from collections import Counter

from heliostat.demo import DEPARTMENTS, PROJECTS, USERS

PROJECT_NAMES = {project.name for project in PROJECTS}


def test_the_hospital_has_the_size_we_say_it_has() -> None:
    assert (len(DEPARTMENTS), len(PROJECTS), len(USERS)) == (6, 14, 40)


def test_names_are_unique_and_may_be_unix_users() -> None:
    assert len({person.name for person in USERS}) == len({person.full_name for person in USERS}) == 40
    assert all(re.fullmatch(r"[a-z][a-z0-9]{1,30}", person.name) for person in USERS)


def test_everybody_belongs_to_projects_that_exist() -> None:
    for person in USERS:
        assert person.projects
        assert set(person.projects) <= PROJECT_NAMES
        assert set(person.managed_projects) <= set(person.projects)


def test_every_project_has_one_manager_and_several_members() -> None:
    managers = Counter(project for person in USERS for project in person.managed_projects)
    members = Counter(project for person in USERS for project in person.projects)
    assert managers == dict.fromkeys(PROJECT_NAMES, 1)
    assert min(members[name] for name in PROJECT_NAMES) >= 2


def test_there_are_one_or_two_admins() -> None:
    assert sum(person.is_admin for person in USERS) == 2
