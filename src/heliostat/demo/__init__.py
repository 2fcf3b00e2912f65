"""Believable people and work for a cluster that does not exist. Pure: the same seed gives the same."""

from heliostat.demo.jobs import DemoJob
from heliostat.demo.people import DEPARTMENTS, PEOPLE, PROJECTS, DemoPerson, DemoProject
from heliostat.demo.workload import history, jobs_of_day, live

__all__ = [
    "DEPARTMENTS",
    "PEOPLE",
    "PROJECTS",
    "DemoJob",
    "DemoPerson",
    "DemoProject",
    "history",
    "jobs_of_day",
    "live",
]
