"""Believable people and work for a cluster that does not exist. Pure: the same seed gives the same."""

from heliostat.demo.accounts import DEPARTMENTS, PROJECTS, USERS, DemoProject, DemoUser
from heliostat.demo.jobs import DemoJob
from heliostat.demo.workload import generate_history, generate_jobs_of_day, generate_live_jobs

__all__ = [
    "DEPARTMENTS",
    "PROJECTS",
    "USERS",
    "DemoJob",
    "DemoProject",
    "DemoUser",
    "generate_history",
    "generate_jobs_of_day",
    "generate_live_jobs",
]
